"""Look at each document by itself: filters, lists of documents, hashes; find equal hashes.

The outcome is a byte for every document, in one file that workers map: `KEPT`, `MARKED`, or the
reason why it is left out. Hashes are written as sorted runs, one for each chunk.

A bucket is a range of hashes. Hashes are even, so all buckets have about the same size; each is
read from every run, where it is a range, and sorted by hash and number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tokmill.dataset.checksum import HASH_BYTES, document_hash
from tokmill.dataset.origins import slices_of
from tokmill.errors import UsageError
from tokmill.extensions import find_path, one_line
from tokmill.mixing.batch import bounds, column, read_chunk, values
from tokmill.words import plural

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.mixing.inputs import Chunk, Inputs
    from tokmill.mixing.settings import MixSettings
    from tokmill.mixing.temporary import Temporary


KEPT, DUPLICATE, LISTED, SHORT, LONG, FILTERED, MARKED = range(7)
LEFT_OUT = {
    DUPLICATE: "duplicate",
    LISTED: "in a drop list",
    SHORT: "fewer than min_tokens",
    LONG: "more than max_tokens",
    FILTERED: "refused by where",
}
"""Why a document is left out, as the manifest says it."""

_RECORD_BITS = 40

_REASONS = "reasons"


BUCKET_DOCUMENTS = 2 << 20
"""Documents of a bucket: 48 MiB of hashes, and twice as much while they are sorted."""


@dataclass(frozen=True, slots=True)
class Origins:
    """The records that the documents of a batch were made from: what `--where` gets.

    Attributes:
        paths: the input files of all datasets.
        sources: (n,) int64, the number of each document's file in `paths`.
        records: (n,) int64, the number of its record in the file, from 1.
    """

    paths: Sequence[str]
    sources: npt.NDArray[np.int64]
    records: npt.NDArray[np.int64]


Filter = Callable[[Any, Any, Origins], Any]


class Survey:
    """The filters of a mix, ready to look at batches."""

    def __init__(self, inputs: Inputs, settings: MixSettings) -> None:
        self._inputs, self._settings = inputs, settings
        self._paths = [row["path"] for row in inputs.rows]
        self._listed = DropList(settings.drop, inputs) if settings.drop else None
        self._where: Filter | None = None
        if settings.where:
            self._where = find_path("where", settings.where).value

    def reasons(self, batch: pa.RecordBatch) -> npt.NDArray[np.uint8]:
        """Return `KEPT`, or why a document is left out: (n,) uint8; the first reason counts."""
        reasons = np.full(len(batch), KEPT, np.uint8)
        settings, lengths = self._settings, np.diff(bounds(batch, self._inputs.dtype))
        if settings.min_tokens:
            reasons[lengths < settings.min_tokens] = SHORT
        if settings.max_tokens:
            reasons[lengths > settings.max_tokens] = LONG
        if self._listed is not None:
            reasons[(reasons == KEPT) & self._listed.has(batch)] = LISTED
        if self._where is not None:
            reasons[(reasons == KEPT) & ~self._accepted(self._where, batch)] = FILTERED
        return reasons

    def _accepted(self, where: Filter, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Return which documents the function of `--where` accepts: (n,) bool."""
        origins = Origins(self._paths, *records_of(batch, self._inputs))
        ids, lengths = values(batch, self._inputs.dtype), np.diff(bounds(batch, self._inputs.dtype))
        ids.flags.writeable = False  # they are hashed after it
        try:
            accepted = np.asarray(where(ids, lengths, origins))
        except (Exception, SystemExit) as error:  # whatever it raises; also: it is no function
            raise UsageError(f"where {self._settings.where} raised {one_line(error)}") from error
        if accepted.shape != (len(batch),) or accepted.dtype != np.bool_:
            raise UsageError(
                f"where {self._settings.where}: expected a boolean for each of "
                f"{plural(len(batch), 'document')}, found {accepted.dtype} {accepted.shape}"
            )
        return accepted


def records_of(
    batch: pa.RecordBatch, inputs: Inputs
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the source of each document, and the number of its record in the file: (n,) int64."""
    slices, records = slices_of(column(batch, "record"))
    return inputs.slice_rows[slices], records + inputs.records_before[slices]


class DropList:
    """Documents that are named by source and record, or by the hash of their ids.

    Memory: 8 bytes for a record, about 100 for a hash.
    """

    def __init__(self, paths: Sequence[str], inputs: Inputs) -> None:
        self._inputs = inputs
        self._hashes: set[bytes] = set()
        rows: dict[str, list[int]] = {}
        for number, row in enumerate(inputs.rows):
            rows.setdefault(row["path"], []).append(number)
        keys = [key for path in paths for key in self._read(Path(path), rows)]
        self._keys = np.unique(np.array(keys, np.int64))

    def _read(self, path: Path, rows: dict[str, list[int]]) -> Iterator[int]:
        """Yield the keys of the records in a file, and keep its hashes."""
        try:
            with path.open(encoding="utf-8") as lines:
                for number, line in enumerate(lines, 1):
                    if line.strip():
                        yield from self._entry(line, f"{path}, line {number}", rows)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: cannot be read: {error}", "mix.drop") from None

    def _entry(self, line: str, where: str, rows: dict[str, list[int]]) -> list[int]:
        expected = 'expected {"source": PATH, "record": NUMBER} or {"hash": 32 hex digits}'
        try:
            entry = json.loads(line)
            if "hash" in entry:
                digest = bytes.fromhex(entry["hash"])
                if len(digest) != HASH_BYTES:
                    raise ValueError
                self._hashes.add(digest)
                return []
            source, record = entry["source"], entry["record"]
            if type(record) is not int or not 0 < record < 1 << _RECORD_BITS:
                raise ValueError
            of_source = rows.get(source)
        except (ValueError, TypeError, KeyError, RecursionError):
            raise UsageError(f"{where}: {expected}, found {line.strip()[:80]!r}") from None
        if of_source is None:
            raise UsageError(f"{where}: no dataset of the mix has the source {source!r}")
        return [(row << _RECORD_BITS) + record for row in of_source]

    def has(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Return which documents are listed: (n,) bool."""
        rows, records = records_of(batch, self._inputs)
        listed = np.isin((rows << _RECORD_BITS) + records, self._keys)
        if self._hashes:
            listed |= np.array([digest in self._hashes for digest in hashes_of(batch)], bool)
        return listed


def hashes_of(batch: pa.RecordBatch) -> list[bytes]:
    """Return BLAKE3-128 of the ids of each document, and of its mask if it has one."""
    ids = (tokens.as_buffer() for tokens in batch.column("bin"))
    if "mask" not in batch.schema.names:
        return list(map(document_hash, ids))
    return list(map(document_hash, ids, (mask.as_buffer() for mask in batch.column("mask"))))


def survey_chunk(
    inputs: Inputs, survey: Survey, chunk: Chunk, temporary: Temporary, *, has_hashes: bool
) -> int:
    """Write the reasons of a chunk, and its run of hashes, `hashes-NUMBER`, sorted.

    A run is (3, n) uint64: the halves of each hash, and the document's number among all. Returns
    the tokens of the chunk.
    """
    batch = read_chunk(inputs, chunk)
    reasons = survey.reasons(batch)
    open_reasons(temporary)[chunk.numbers] = reasons
    n_tokens = int(np.ptp(bounds(batch, inputs.dtype)))
    if not has_hashes:
        return n_tokens
    kept = np.flatnonzero(reasons == KEPT)
    digests = np.frombuffer(b"".join(hashes_of(batch.take(pa.array(kept)))), ">u8").reshape(-1, 2)
    run = np.stack([digests[:, 0], digests[:, 1], kept + chunk.first]).astype(np.uint64)
    with temporary.new(f"hashes-{chunk.first}") as file:
        file.write(np.ascontiguousarray(run[:, np.lexsort(run[::-1])]).data)
    return n_tokens


def make_reasons(temporary: Temporary, n_documents: int) -> None:
    """Make the file of reasons, all `KEPT`, unless it is there."""
    temporary.make_zeros(_REASONS, n_documents)


def open_reasons(temporary: Temporary) -> npt.NDArray[np.uint8]:
    """Map the reasons of all documents: (n,) uint8, which can be written."""
    return temporary.map_writable(_REASONS)


def find_duplicates(
    temporary: Temporary,
    firsts: list[int],
    bucket: tuple[int, int],
    n_val: int,
    *,
    marks: bool | None,
) -> tuple[int, int]:
    """Write the reasons of documents of a bucket that equal one before.

    Args:
        temporary: of the runs and the reasons.
        firsts: the first document of each chunk, which names its run.
        bucket: its number, and the number of all.
        n_val: documents of val, which are those with the lowest numbers.
        marks: True: they are kept, and marked; False: they are left out; None: only counted.

    Returns:
        How many there are, and how many of train equal one of val.
    """
    low, high = ((number << 64) // bucket[1] for number in (bucket[0], bucket[0] + 1))
    names = [f"hashes-{first}" for first in firsts]
    hashes = np.concatenate([_range(temporary, name, low, high) for name in names], axis=1)
    hashes = hashes[:, np.lexsort(hashes[::-1])]
    numbers = hashes[2].astype(np.int64)
    is_equal = np.zeros(len(numbers), bool)
    is_equal[1:] = (hashes[:2, 1:] == hashes[:2, :-1]).all(axis=0)
    groups = np.cumsum(~is_equal) - 1
    in_val = (numbers < n_val)[~is_equal]
    n_overlap = int(np.count_nonzero(in_val[groups] & (numbers >= n_val)))
    if marks is not None:
        open_reasons(temporary)[numbers[is_equal]] = MARKED if marks else DUPLICATE
    return int(np.count_nonzero(is_equal)), n_overlap


def _range(temporary: Temporary, name: str, low: int, high: int) -> npt.NDArray[np.uint64]:
    """Return the hashes of a run whose upper halves are `low` to below `high`: (3, n)."""
    run = temporary.map(name, np.uint64).reshape(3, -1)
    start = int(np.searchsorted(run[0], np.uint64(low)))
    stop = run.shape[1] if high >> 64 else int(np.searchsorted(run[0], np.uint64(high)))
    return np.array(run[:, start:stop])
