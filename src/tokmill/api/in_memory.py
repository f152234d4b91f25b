"""Rows in memory as input: they are written to a file, which is read as any other.

The file stands beside the output (`OUTPUT.rows/`) until the dataset is complete; for an output in a
store, in the directory of temporary files. Its name has the hash of its content, and its time is
always the same: so a run that was stopped continues with the same rows, whoever gives them again.

Tables are written as Parquet, a few MiB at a time; dicts and texts as JSON Lines.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

from tokmill.dataset.layout import PLAN
from tokmill.errors import StorageError, UsageError
from tokmill.settings.rows import ArrowStream, brief, is_rows, is_table
from tokmill.settings.schema import Source
from tokmill.sources.hub import is_hub
from tokmill.storage import (
    PendingFile,
    make_directory,
    remove_file,
    storage_errors,
)
from tokmill.urls import is_store, local_path
from tokmill.words import plural, size

if TYPE_CHECKING:
    import pyarrow as pa

    from tokmill.api.jobs import Inputs

Note = Callable[[str], None]

_TIME_NS = 315_532_800 * 10**9
"""1980-01-01: a plan compares the times of files, and equal rows are an equal file."""
_HASH_DIGITS = 12
_OURS = re.compile(rf"[\w-]+-[0-9a-f]{{{_HASH_DIGITS}}}\.(?:jsonl|parquet)|\..+\.tmp")
_PIECE_BYTES, _GROUP_BYTES = 4 << 20, 16 << 20
"""Columns that are held for one step of writing, and the row groups of the file."""
_BATCH_ROWS = 1000
_LONGEST_PATH = 4096
_NOTHING = object()
_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class GivenRows:
    """Rows of a call; `is_once`: they come from an iterator, and cannot be read again."""

    value: Any
    is_once: bool


class Written(NamedTuple):
    """A file of rows; `is_new`: this call made it."""

    path: Path
    n_rows: int
    n_bytes: int
    is_new: bool

    def __str__(self) -> str:
        return f"{plural(self.n_rows, 'row')} written to {self.path} ({size(self.n_bytes)})"


class GivenInputs:
    """The inputs of a call, among which may be rows.

    Args:
        inputs: as `tokmill.pretrain` takes them.
        sources: the setting `source`, whose items may have rows as their paths.
    """

    def __init__(self, inputs: Inputs, sources: Any = None) -> None:
        self._given: list[GivenRows] = []
        self._inputs = _changed(inputs, self._looked_at)
        self._sources = _changed_sources(sources, self._looked_at)

    @property
    def has_rows(self) -> bool:
        """Return whether there are rows among them."""
        return bool(self._given)

    @property
    def has_rows_once(self) -> bool:
        """Return whether some of the rows can be read only once."""
        return any(given.is_once for given in self._given)

    def with_files(self, file_of: Callable[[str, GivenRows], Path]) -> tuple[Any, Any]:
        """Return inputs and sources with a file in place of all rows of one name."""

        def changed(name: str, value: Any) -> Any:
            return file_of(name, value) if isinstance(value, GivenRows) else value

        return _changed(self._inputs, changed), _changed_sources(self._sources, changed)

    def _looked_at(self, name: str, value: Any) -> Any:
        """Return rows as `GivenRows`, an iterator of paths as a list, and other inputs as given.

        Raises:
            UsageError: an iterator gives nothing.
        """
        if not is_rows(value):
            return value
        is_once = isinstance(value, Iterator)
        if is_once and not is_table(value):
            first = next(value, _NOTHING)
            if first is _NOTHING:
                raise UsageError(
                    f"inputs: expected paths or rows, found {brief(value)}, which gives none: was "
                    "it read before?"
                )
            value = chain([first], value)
            if isinstance(first, os.PathLike | Source):
                return list(value)
        given = GivenRows(value, is_once or hasattr(value, "read_next_batch"))
        self._given.append(given)
        return given


def _changed(inputs: Any, change: Callable[[str, Any], Any]) -> Any:
    """Return inputs with a change made to whatever may be paths, by its name."""
    if isinstance(inputs, Source):
        return Source(inputs.name, change(inputs.name, inputs.paths), **inputs.settings)  # type: ignore[arg-type]
    inputs = change("rows", inputs)
    if isinstance(inputs, list | tuple):
        return [_changed(item, change) if isinstance(item, Source) else item for item in inputs]
    return inputs


def _changed_sources(sources: Any, change: Callable[[str, Any], Any]) -> Any:
    """Return the setting `source` with a change made to the paths of each item."""
    if not isinstance(sources, list | tuple):
        return sources
    changed: list[Any] = []
    for item in sources:
        if isinstance(item, Mapping) and "paths" in item:
            name = item.get("name") or "rows"
            changed.append({**item, "paths": change(name, item["paths"])})
        else:
            changed.append(_changed(item, change) if isinstance(item, Source) else item)
    return changed


def placeholder(name: str, _rows: GivenRows) -> Path:
    """Return a path in place of rows, to check the other settings before they are read."""
    return Path(f"{name}.jsonl")


@contextmanager
def spilled(given: GivenInputs, output: str, note: Note, warn: Note) -> Iterator[tuple[Any, Any]]:
    """Write the rows among inputs to files, and yield inputs and sources that name these.

    They are removed at the end of the context. After an exception they stay if a run in `output`
    may continue with them, or if the rows cannot be read again; `warn` gets a line that says so.

    Raises:
        UsageError: rows are neither dicts nor texts, or cannot be written as such.
        StorageError: there is no room, or no right to write beside the output.
    """
    if not given.has_rows:
        yield given.with_files(placeholder)
        return
    folder = _folder_beside(output)
    written: list[Written] = []

    def write(name: str, rows: GivenRows) -> Path:
        written.append(_write(folder, name, rows.value))
        note(
            f"{written[-1]}, which is removed once the dataset is complete: a run that is stopped "
            "continues with the same rows, or with that file as input"
        )
        return written[-1].path

    try:
        yield given.with_files(write)
    except BaseException:
        names = " and ".join(str(file.path) for file in written)
        if written and (given.has_rows_once or _is_begun(output, written)):
            warn(f"rows are kept in {names}: make the same call again, or with that as input")
        else:
            _remove(folder, [file.path.name for file in written if file.is_new])
        raise
    _remove(folder, [name for name in os.listdir(folder) if _OURS.fullmatch(name)])  # noqa: PTH208


@contextmanager
def spilled_for_now(given: GivenInputs) -> Iterator[tuple[Any, Any]]:
    """Write the rows among inputs to a temporary directory, and yield as `spilled` does."""
    if not given.has_rows:
        yield given.with_files(placeholder)
        return
    with tempfile.TemporaryDirectory(prefix="tokmill-rows-") as folder:
        yield given.with_files(lambda name, rows: _write(Path(folder), name, rows.value).path)


def _folder_beside(output: str) -> Path:
    """Return the folder for the rows of an output; for one in a store, a private temporary one.

    Raises:
        StorageError: somebody else made the temporary one.
    """
    if not is_store(local_path(output)):
        path = Path(local_path(output))
        path = path.resolve() if path.name in ("", "..") else path
        return path.with_name(f"{path.name}.rows")
    private = Path(tempfile.gettempdir()) / f"tokmill-rows-{os.getuid()}"
    with storage_errors(private), suppress(FileExistsError):
        private.mkdir(mode=0o700)
    status = private.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o77 or not private.is_dir():
        raise StorageError(
            f"{private}: expected a folder that only you can open: set TMPDIR to another place"
        )
    return private / hashlib.sha256(output.encode()).hexdigest()[:_HASH_DIGITS]


def _is_begun(output: str, written: Sequence[Written]) -> bool:
    """Return whether the plan in an output names a file of rows; in a store nobody looks."""
    if is_store(local_path(output)):
        return True
    try:
        plan = (Path(local_path(output)) / PLAN).read_bytes()
    except OSError:
        return False
    return any(file.path.stem[-_HASH_DIGITS:].encode() in plan for file in written)


def _remove(folder: Path, names: Sequence[str]) -> None:
    """Remove files of rows, and their folder if nothing else is in it."""
    for name in names:
        remove_file(folder, name)
    with suppress(OSError):
        folder.rmdir()


def _write(folder: Path, name: str, rows: Any) -> Written:
    """Write rows to a file of a folder; `name`: of their source."""
    if callable(rows) and not (is_table(rows) or isinstance(rows, Iterable)):
        rows = rows()
    batches = _batches_of(rows)
    slug = re.sub(r"[^\w-]+", "_", name)[:64]
    make_directory(folder)
    with PendingFile(folder, "rows") as pending:
        sink = _Sink(pending, name)
        with cast("BinaryIO", io.BufferedWriter(sink, _BUFFER_BYTES)) as buffered:
            if batches is None:
                n_rows = _write_lines(_iterable(rows), buffered)
            else:
                n_rows = _write_batches(batches, buffered)
        kind = "jsonl" if batches is None else "parquet"
        path = folder / f"{slug}-{sink.sum.hexdigest()[:_HASH_DIGITS]}.{kind}"
        is_new = not path.exists()
        with storage_errors(path):
            os.utime(pending.file.fileno(), ns=(_TIME_NS, _TIME_NS))
        pending.commit(name=path.name, replace=True)
    return Written(path, n_rows, sink.n_bytes, is_new)


class _Sink(io.RawIOBase):
    """Writes to a pending file, and hashes what it writes.

    `name`: is hashed first, so that two sources of equal rows are two files.
    """

    def __init__(self, pending: PendingFile, name: str) -> None:
        self.sum = hashlib.sha256(f"{name}\0".encode())
        self.n_bytes = 0
        self._pending = pending

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Append bytes, all of them."""
        self._pending.write(data)
        self.sum.update(data)
        self.n_bytes += len(data)
        return len(data)


# Dicts and texts


def _iterable(rows: Any) -> Iterable[Any]:
    """Return rows that can be iterated; raises `UsageError` for one text, one dict, and no rows."""
    if isinstance(rows, Iterable) and not isinstance(rows, str | bytes | Mapping):
        return rows
    raise UsageError(
        f"inputs: expected rows: dicts, texts or a table; found {brief(rows)}"
        + (": give [ROW], or of several splits one" if isinstance(rows, Mapping) else "")
    )


def _write_lines(rows: Iterable[Any], file: BinaryIO) -> int:
    """Write rows as JSON Lines, and return how many."""
    n_rows = 0
    for n_rows, row in enumerate(rows, 1):
        if n_rows == 1 and isinstance(row, str):
            _refuse_path(row)
        file.write(_line(row, n_rows))
    return n_rows


def _refuse_path(text: str) -> None:
    """Raise `UsageError` for a text that is the name of an input: nobody trains on names."""
    is_name = len(text.split()) == 1 and (is_hub(text) or is_store(text))
    if is_name or (len(text) < _LONGEST_PATH and os.path.exists(text)):  # noqa: PTH110
        raise UsageError(
            f"inputs: the first of the texts is the name of an input, {text}: give paths as a list,"
            ' or texts as {"text": …}'
        )


def _line(row: Any, number: int) -> bytes:
    """Return a row as a line of JSON; what is no number (NaN) is null, as in a table."""
    record = {"text": row} if isinstance(row, str) else row
    if not isinstance(record, Mapping):
        advice = ": give paths as a list" if isinstance(row, os.PathLike) else ""
        raise UsageError(
            f"inputs: row {number}: expected a dict or a text, found {brief(row)}{advice}"
        )
    try:
        return _json(dict(record))
    except (TypeError, ValueError, RecursionError) as error:
        keys = [f" {brief(key)}:" for key, value in record.items() if not _can_be_json(value)]
        raise UsageError(
            f"inputs: row {number}:{''.join(keys[:1])} expected what JSON can hold "
            f"({str(error).lower()}): leave that key out, or make text of it"
        ) from None


def _can_be_json(value: Any) -> bool:
    try:
        _json({"": value})
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _json(record: dict[Any, Any]) -> bytes:
    """Return a record as JSON and a newline; halves of surrogate pairs are escaped."""
    try:
        text = json.dumps(record, ensure_ascii=False, allow_nan=False, default=_plain)
    except ValueError:
        record = _with_null(record)
        text = json.dumps(record, ensure_ascii=False, allow_nan=False, default=_plain)
    try:
        return f"{text}\n".encode()
    except UnicodeEncodeError:
        return f"{json.dumps(record, default=_plain)}\n".encode()


def _with_null(value: Any) -> Any:
    """Return a value with None for each number that is NaN or infinite."""
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, Mapping):
        return {key: _with_null(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_null(item) for item in value]
    return _with_null(value.tolist()) if hasattr(value, "tolist") else value


_AS_TEXT = ("Decimal", "UUID", "PosixPath", "PurePosixPath")


def _plain(value: Any) -> Any:
    """Return what JSON holds in place of an array, a time, and a few others."""
    if isinstance(value, Mapping):
        return dict(value)
    for method in ("tolist", "as_py", "isoformat"):  # of NumPy and torch, of Arrow, of times
        if hasattr(value, method):
            return getattr(value, method)()
    if type(value).__name__ in _AS_TEXT:
        return str(value)
    raise TypeError(f"found {type(value).__name__}")


# Tables


def _batches_of(rows: Any) -> Iterator[pa.RecordBatch] | None:
    """Return the record batches of a table, None for other rows.

    Raises:
        UsageError: the library of the table cannot give it to Arrow.
    """
    if _is_of_datasets(rows):
        return _of_datasets(rows)
    if not is_table(rows):
        return None
    import pyarrow as pa

    try:
        reader: Iterator[pa.RecordBatch] = iter(_reader(rows))
        return reader
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _no_table(error) from error


def _reader(rows: Any) -> pa.RecordBatchReader:
    """Return a reader of a table, of a batch, or of a column of texts."""
    import pyarrow as pa

    if isinstance(rows, pa.RecordBatch):  # a stream of it in all versions of pyarrow
        return pa.RecordBatchReader.from_batches(rows.schema, [rows])
    if not isinstance(rows, ArrowStream):
        return _texts(pa.array(rows)).to_reader()
    try:
        return pa.RecordBatchReader.from_stream(rows)
    except pa.ArrowInvalid as error:
        if "non-struct type" not in str(error):
            raise
    return _texts(pa.chunked_array(rows)).to_reader()


def _texts(column: Any) -> pa.Table:
    """Return a column alone as the table of its texts."""
    import pyarrow as pa

    if pa.types.is_struct(column.type):
        return pa.Table.from_struct_array(column)
    if len(column) and isinstance(first := column[0].as_py(), str):
        _refuse_path(first)
    return pa.table({"text": column})


def _no_table(error: Exception) -> UsageError:
    reason = str(error).splitlines()[0].lower() if str(error) else type(error).__name__
    return UsageError(
        f"inputs: the table cannot be written as Parquet: {reason}: leave that column out, or give "
        "its rows as dicts"
    )


def _is_of_datasets(rows: Any) -> bool:
    """Return whether rows are a `datasets.Dataset` whose rows no function makes on demand."""
    kinds = [(kind.__module__, kind.__qualname__) for kind in type(rows).__mro__]
    return ("datasets.arrow_dataset", "Dataset") in kinds and rows.format["type"] != "custom"


def _of_datasets(rows: Any) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a `datasets.Dataset`, in its own order and with its own columns."""
    plain = rows.with_format("arrow", columns=rows.format["columns"])
    for table in plain.iter(batch_size=_BATCH_ROWS):
        yield from table.to_batches()


def _write_batches(batches: Iterator[pa.RecordBatch], file: BinaryIO) -> int:
    """Write record batches as Parquet in row groups of `_GROUP_BYTES`, and return their rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    n_rows = 0
    writer: pq.ParquetWriter | None = None
    held: list[pa.RecordBatch] = []

    def write_held() -> None:
        nonlocal writer
        table = pa.Table.from_batches(held)
        writer = writer or pq.ParquetWriter(file, table.schema)
        writer.write_table(table, row_group_size=max(1, table.num_rows))
        held.clear()

    try:
        for piece in _pieces(batches):
            n_rows += piece.num_rows
            held.append(piece)
            if sum(batch.nbytes for batch in held) >= _GROUP_BYTES:
                write_held()
        if held:
            write_held()
        if writer is not None:
            writer.close()
    except pa.ArrowException as error:
        raise _no_table(error) from error
    return n_rows


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches of about `_PIECE_BYTES` without views and without an index of pandas.

    A slice of a view is written with all of the text around it.
    """
    import pyarrow as pa

    from tokmill.sources.bad_text import change_leaves

    views = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    for batch in batches:
        kept = [name for name in batch.schema.names if not re.fullmatch(_INDEX, name)]
        batch = batch.select(kept)
        fields = [
            pa.field(field.name, change_leaves(field.type, lambda kind: views.get(kind, kind)))
            for field in batch.schema
        ]
        n_rows = max(1, batch.num_rows * _PIECE_BYTES // max(1, batch.nbytes))
        for start in range(0, max(1, batch.num_rows), n_rows):
            yield batch.slice(start, n_rows).cast(pa.schema(fields))


_INDEX = "__index_level_[0-9]+__"
