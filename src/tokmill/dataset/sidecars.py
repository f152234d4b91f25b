"""The sidecars that have a format of their own: `.idx` and `.meta`.

`.idx`, the document index, is Megatron's MMIDIDX version 1, a sequence a document:

| offset       | bytes    | value                                                     |
|--------------|----------|-----------------------------------------------------------|
| 0            | 9        | "MMIDIDX", two zero bytes                                 |
| 9            | 8        | u64 version, 1                                            |
| 17           | 1        | u8 dtype code: 8 = uint16, 4 = int32 (declared for uint32)|
| 18           | 8        | u64 D, documents                                          |
| 26           | 8        | u64 D + 1                                                 |
| 34           | 4 D      | i32 length of each document in tokens, eos included       |
| 34 + 4 D     | 8 D      | i64 byte offset of each document in `.bin`                |
| 34 + 12 D    | 8 (D+1)  | i64 0, 1, … D                                             |

All little-endian. Source of the layout: Megatron-LM, megatron/core/datasets/indexed_dataset.py.

`.meta` holds the metadata columns: an Arrow IPC file with a row for each document. Every record
batch but the last has `GROUP` documents, so that neither blocks nor workers change a byte.
`pyarrow.ipc.open_file(pyarrow.memory_map(...))` reads it, too.
"""

from __future__ import annotations

import io
import os
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from tokmill.dataset.file_array import FileArray, open_file
from tokmill.errors import VerifyError
from tokmill.storage import read_errors
from tokmill.urls import shown_place
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.dataset.file_array import DataFile


MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")
DTYPE_CODES = {1: 1, 2: 8, 4: 4}
"""Bytes per token to Megatron's code. It has no unsigned 32-bit code: ids stay below 2^31.
One byte is for masks, in exports; the shards of a dataset have two or four."""

MAX_LENGTH = (1 << 31) - 1
"""Most tokens of a document: its length is an int32."""

_CHUNK_DOCUMENTS = 1 << 20


class IndexWriter:
    """Writes an index document by document; memory does not grow with their number.

    `file`: empty, open for reading and writing; `write` appends to it. `item_bytes`: 4, 2, or 1 for
    the bytes of masks.
    """

    def __init__(self, file: BinaryIO, write: Callable[[bytes], object], item_bytes: int) -> None:
        self._file, self._write, self._item_bytes = file, write, item_bytes
        self._n_documents = 0
        write(bytes(HEADER.size))

    def append(self, lengths: npt.NDArray[np.integer]) -> None:
        """Add documents by their lengths in tokens, at most `MAX_LENGTH` each."""
        for start in range(0, len(lengths), _CHUNK_DOCUMENTS):
            self._write(lengths[start : start + _CHUNK_DOCUMENTS].astype("<i4").tobytes())
        self._n_documents += len(lengths)

    def finish(self) -> None:
        """Write byte offsets, document indices and the header."""
        n, n_bytes = self._n_documents, 0
        for start in range(0, n, _CHUNK_DOCUMENTS):
            self._file.seek(HEADER.size + 4 * start)
            data = self._file.read(4 * min(_CHUNK_DOCUMENTS, n - start))
            self._file.seek(0, 2)
            sizes = np.frombuffer(data, "<i4").astype(np.int64) * self._item_bytes
            ends = n_bytes + np.cumsum(sizes)
            self._write((ends - sizes).astype("<i8").tobytes())
            n_bytes = int(ends[-1])
        for start in range(0, n + 1, _CHUNK_DOCUMENTS):
            stop = min(start + _CHUNK_DOCUMENTS, n + 1)
            self._write(np.arange(start, stop, dtype="<i8").tobytes())
        self._file.seek(0)
        self._write(HEADER.pack(MAGIC, 1, DTYPE_CODES[self._item_bytes], n, n + 1))


def index_bytes(n: int) -> int:
    """Return the size of an index of `n` documents."""
    return HEADER.size + 12 * n + 8 * (n + 1)


def read_index(path: Path) -> tuple[FileArray, FileArray, int]:
    """Return lengths (D,) int32 in tokens, byte offsets (D,) int64, and the bytes of a token.

    Raises:
        VerifyError: the file is not an index of version 1, or its size does not fit its header.
        OSError: it cannot be read.
    """
    file = open_file(path)
    size, shown = file.n_bytes, file.path
    header = file.read(0, HEADER.size) if size >= HEADER.size else b""
    if header[:9] != MAGIC:
        raise VerifyError(f"{shown}: not an MMIDIDX index")
    _, version, code, n, n_indices = HEADER.unpack(header)
    items = {code: item for item, code in DTYPE_CODES.items() if item > 1}
    if version != 1 or code not in items or n_indices != n + 1:
        raise VerifyError(f"{shown}: index header says version {version}, dtype code {code}")
    if size != index_bytes(n):
        raise VerifyError(f"{shown}: {plural(size, 'byte')} do not fit {plural(n, 'document')}")
    lengths = FileArray(file, "<i4", HEADER.size, n)
    offsets = FileArray(file, "<i8", HEADER.size + 4 * n, n)
    return lengths, offsets, items[code]


def open_document_indices(path: Path, n_documents: int) -> FileArray:
    """Return the last numbers of an index: (D + 1,) int64, 0 to D; raises as `open_file`."""
    return FileArray(open_file(path), "<i8", HEADER.size + 12 * n_documents, n_documents + 1)


def open_index(path: Path, n_documents: int, item_bytes: int = 0) -> tuple[FileArray, FileArray]:
    """Return lengths and offsets of an index, see `read_index`, that fits the manifest.

    `item_bytes`: bytes of a token; 0: any.

    Raises:
        VerifyError: it is missing or broken, or has other documents or tokens.
        StorageError: it cannot be read, or too many files are open.
    """
    with read_errors(path):
        lengths, offsets, found_bytes = read_index(path)
    if len(lengths) != n_documents or item_bytes not in (0, found_bytes):
        raise VerifyError(
            f"{shown_place(path)}: "
            f"{plural(len(lengths), 'document')} of {plural(found_bytes, 'byte')} a token, "
            f"the manifest says {n_documents:,} of {item_bytes or found_bytes}; see tokmill verify"
        )
    return lengths, offsets


METADATA = "meta"
"""The ending of the file."""

GROUP = 256
"""Documents of a record batch. A writer holds their values, and its head takes 2 to 4 bytes a
document."""


class MetadataEncoder:
    """Encodes the rows of a shard's documents, in order; how they are divided changes no byte."""

    def __init__(self) -> None:
        self._sink = io.BytesIO()
        self._file: Any = None
        self._waiting: Any = None

    def encode(self, parts: Sequence[pa.RecordBatch | pa.Table]) -> bytes:
        """Return the bytes of the next complete groups; `parts`: at least one."""
        import pyarrow as pa

        schema = parts[0].schema
        if self._file is None:  # Arrow counts the bytes itself, so that the sink may be emptied
            options = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V5)
            self._file = pa.ipc.new_file(pa.PythonFile(self._sink, "w"), schema, options=options)
            self._waiting = schema.empty_table()
        tables = (
            part if isinstance(part, pa.Table) else pa.Table.from_batches([part]) for part in parts
        )
        self._waiting = pa.concat_tables([self._waiting, *tables])
        return self._groups(GROUP)

    def finish(self) -> bytes:
        """Return the rest of the file; something was encoded before."""
        rest = self._groups(1)
        self._file.close()
        return rest + self._groups(1)

    def _groups(self, least: int) -> bytes:
        """Return the bytes of groups, and what else was written, until less than `least` wait."""
        import pyarrow as pa

        while self._waiting.num_rows >= least:
            # Made anew from Python strings: buffers of slices hold bits of other rows.
            columns = [column.to_pylist() for column in self._waiting[:GROUP].columns]
            arrays = [pa.array(column, pa.large_string()) for column in columns]
            self._file.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._waiting.schema))
            self._waiting = self._waiting[GROUP:]
        data = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return data


def read_metadata(path: Path, keep: Sequence[str], start: int, stop: int) -> pa.Table:
    """Return the rows of documents `start` to `stop - 1` of a shard, with the columns `keep`.

    Raises:
        VerifyError: the file is missing, damaged, or does not hold them.
        StorageError: the user may not read it.
    """
    import pyarrow as pa

    with _opened_metadata(path, keep) as reader:
        last = min(-(-stop // GROUP), reader.num_record_batches)
        batches = [_metadata_group(reader, number) for number in range(start // GROUP, last)]
        rows = pa.Table.from_batches(batches, reader.schema)[start % GROUP :]
        if rows.num_rows < stop - start:
            raise ValueError("not the metadata of these documents")
        return rows[: stop - start]


def check_metadata(path: Path, keep: Sequence[str], n_documents: int) -> None:
    """Check that a file of metadata has a row for each document of its shard, and no more.

    Raises:
        VerifyError: it is missing, damaged, or has others.
        StorageError: the user may not read it.
    """
    with _opened_metadata(path, keep) as reader:
        groups = range(reader.num_record_batches)
        n_rows = sum(_metadata_group(reader, number).num_rows for number in groups)
        if n_rows != n_documents:
            raise ValueError(f"{plural(n_rows, 'row')}, expected {plural(n_documents, 'document')}")


@contextmanager
def _opened_metadata(path: Path, keep: Sequence[str]) -> Iterator[Any]:
    """Open a file of metadata with the columns `keep`; what is wrong becomes one line.

    Groups are read into memory: a map of a file that is cut meanwhile would end the process.
    """
    import pyarrow as pa

    expected = pa.schema([(name, pa.large_string()) for name in keep])
    with read_errors(path):
        reader = pa.ipc.open_file(pa.PythonFile(_FileForArrow(open_file(path)), mode="r"))
        if not reader.schema.equals(expected):
            raise ValueError(f"expected columns of text, {', '.join(keep)}")
        yield reader


def _metadata_group(reader: Any, number: int) -> pa.RecordBatch:
    """Return a record batch; raises ValueError if it is damaged, or has a wrong number of rows."""
    batch = reader.get_batch(number)
    batch.validate(full=True)  # damaged offsets would be followed
    is_last = number == reader.num_record_batches - 1
    if batch.num_rows > GROUP or (batch.num_rows < GROUP and not is_last):
        raise ValueError("not the metadata of these documents")
    return batch


class _FileForArrow:
    """A file for Arrow, which makes room for as many bytes as a damaged head asks for."""

    closed = False

    def __init__(self, file: DataFile) -> None:
        self._file, self._n_bytes = file, file.n_bytes
        self._position = 0

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a byte, and return its position."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._n_bytes}
        self._position = max(0, base[whence] + offset)
        return self._position

    def read(self, n_bytes: int) -> bytes:
        """Read so many bytes, or those that are left."""
        n_bytes = min(n_bytes, max(0, self._n_bytes - self._position))
        data = self._file.read(self._position, n_bytes) if n_bytes else b""
        self._position += len(data)
        return data

    def close(self) -> None:
        """Do nothing: the file is closed when nothing refers to it."""
