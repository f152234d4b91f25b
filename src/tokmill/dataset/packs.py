"""Packs: samples of a split in rows of a given length, their index, and rows as shards.

| file                     | holds                                                      |
|--------------------------|------------------------------------------------------------|
| `packs-SPLIT-rows.bin`   | (n_rows + 1,) i64: row r is samples[rows[r]:rows[r + 1]]    |
| `packs-SPLIT-samples.bin`| (n_samples,) i64: numbers in the split, dataset order, from 0 |

Little-endian, no header. Neither file is of use without the other. A shard of packed rows has the
samples of each row end to end, and padding up to the length that all rows have.

Packing is best-fit-decreasing over a split, and deterministic. Samples are placed from the longest
to the shortest; equal lengths in their order. Each goes to the row with the least room that is
enough; among equal rows, to the one that reached that room first. If there is none, a new row
begins. No sample is split.

Samples of one length are placed in groups: the best row for the first stays the best until it is
full, so rows with room f take f // length samples each. Python works once for each group of rows
and length; NumPy does the work for each sample.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.documents import Documents, ShardFiles, Spans, close_files
from tokmill.dataset.idx_file import open_index
from tokmill.dataset.layout import SHARD_BYTES, SPLITS, pack_names, packed_stem
from tokmill.dataset.reader import sidecars_of
from tokmill.dataset.writer import ShardWriter, write_hashed_chunks
from tokmill.errors import UsageError, VerifyError
from tokmill.storage import read_errors
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokmill.dataset.checksum import FileEntry

MEMORY_BYTES_PER_SAMPLE = 45
"""Peak memory of packing with the lengths: 32 at ten samples a row, 45 at one. A test checks it."""

BLOCK_TOKENS = 1 << 20
"""Tokens of the rows that are read at a time, about."""

_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Packs:
    """Rows of samples: row r is `samples[row_offsets[r]:row_offsets[r + 1]]`, at least one sample.

    `row_offsets`: (n_rows + 1,) int64. `samples`: (n_samples,) int64, every number in the split
    once, increasing within a row. Rows are in the order of their first sample; in the order of
    creation the first rows would have all the longest samples.
    """

    row_offsets: npt.NDArray[np.int64]
    samples: npt.NDArray[np.int64]

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return len(self.row_offsets) - 1

    def row(self, i: int) -> npt.NDArray[np.int64]:
        """Return the samples of row `i`, by their numbers in the split."""
        return self.samples[int(self.row_offsets[i]) : int(self.row_offsets[i + 1])]


def pack(lengths: npt.NDArray[np.integer], capacity: int) -> Packs:
    """Pack samples of (n,) lengths into rows of at most `capacity` tokens.

    Memory: `MEMORY_BYTES_PER_SAMPLE` with `lengths` in int32; the result takes 8, and 8 a row.

    Raises:
        UsageError: a sample is longer than a row, or empty.
    """
    n = len(lengths)
    if not n:
        return Packs(np.zeros(1, np.int64), np.zeros(0, np.int64))
    for i in (int(lengths.argmax()), int(lengths.argmin())):
        if not 1 <= lengths[i] <= capacity:
            raise UsageError(
                f"sample {i}: {plural(int(lengths[i]), 'token')}, but a packed row holds "
                f"1 to {capacity}: set --max-tokens to at most {capacity}"
            )
    rows = _Rows(capacity)
    counts = np.bincount(lengths)
    distinct = np.flatnonzero(counts)[::-1]
    for length, count in zip(distinct.tolist(), counts[distinct].tolist(), strict=True):
        rows.take(length, count)
    by_length = _sorted_by(capacity - lengths.astype(np.int64), n)
    row_of = np.empty(n, np.int64)
    row_of[by_length] = rows.of_samples()
    del by_length
    return _in_order(row_of, rows.n)


def write_pack_index(
    directory: Path,
    split: str,
    row_offsets: npt.NDArray[np.int64],
    samples: npt.NDArray[np.int64],
    algorithm: str,
) -> list[FileEntry]:
    """Write the two files of a split, and return their entries; raises `StorageError`."""
    files = []
    for name, values in zip(pack_names(split), (row_offsets, samples), strict=True):
        data = np.ascontiguousarray(values, "<i8").view(np.uint8).data
        chunks = (data[i : i + _CHUNK_BYTES] for i in range(0, len(data), _CHUNK_BYTES))
        files.append(write_hashed_chunks(directory, name, chunks, algorithm))
    return files


def open_packs(directory: Path, split: str) -> Packs:
    """Map the pack index of a split.

    Raises:
        VerifyError: a file is missing, or its size is no multiple of 8 bytes.
        StorageError: the user may not read a file.
    """
    mapped = []
    for name in pack_names(split):
        with read_errors(directory / name):
            mapped.append(np.memmap(directory / name, dtype="<i8", mode="r"))
    return Packs(*mapped)


def summary(n_rows: int, n_samples: int, n_tokens: int, capacity: int) -> dict[str, int | float]:
    """Return the manifest's entry for the packs of a split; `fill` is the share of real tokens."""
    return {
        "capacity": capacity,
        "rows": n_rows,
        "samples": n_samples,
        "tokens": n_tokens,
        "fill": round(n_tokens / (n_rows * capacity), 6),
    }


def sample_lengths(
    directory: Path, shards: Sequence[Mapping[str, Any]], split: str
) -> npt.NDArray[np.int32]:
    """Return the tokens of every sample of a split, in the order of the dataset: (n,) int32.

    Raises:
        VerifyError: an index is missing, broken, or has other documents than its entry says.
        StorageError: the user may not read an index.
    """
    of_split = [entry for entry in shards if entry["split"] == split]
    lengths = np.empty(sum(entry["documents"] for entry in of_split), np.int32)
    start = 0
    for entry in of_split:
        stop = start + entry["documents"]
        index = open_index(directory / f"{entry['name']}.idx", entry["documents"])
        lengths[start:stop], start = index[0], stop
    return lengths


def write_packs(
    directory: Path, shards: Sequence[Mapping[str, Any]], capacity: int, algorithm: str
) -> tuple[list[FileEntry], dict[str, Any]]:
    """Pack every split of a dataset with the listed shards, and write its pack index.

    Memory: `MEMORY_BYTES_PER_SAMPLE` for each sample of the larger split.

    Returns:
        The files written, and the manifest's entry for every split with samples: its `summary`,
        and `bytes_per_sample` of memory.

    Raises:
        UsageError: a sample is longer than a row.
        VerifyError: a shard's index is missing or broken.
        StorageError: the files cannot be written.
    """
    files: list[FileEntry] = []
    packs: dict[str, Any] = {}
    for split in SPLITS:
        lengths = sample_lengths(directory, shards, split)
        if not len(lengths):
            continue
        made = pack(lengths, capacity)
        files += write_pack_index(directory, split, made.row_offsets, made.samples, algorithm)
        n_tokens = int(lengths.sum(dtype=np.int64))
        counts = summary(made.n_rows, len(lengths), n_tokens, capacity)
        packs[split] = {**counts, "bytes_per_sample": MEMORY_BYTES_PER_SAMPLE}
    return files, packs


class PackReader:
    """Reads rows from the shards of a split.

    `capacity`: tokens of a row. `pad_id`: the id of padding, with mask and weight 0.
    """

    def __init__(self, documents: Documents, packs: Packs, capacity: int, pad_id: int) -> None:
        self._files = ShardFiles(documents)
        self.packs = packs
        self.capacity = capacity
        self.pad_id = pad_id

    @property
    def block_rows(self) -> int:
        """Return the number of rows to read at a time."""
        return max(1, BLOCK_TOKENS // self.capacity)

    def rows(self, start: int, stop: int) -> dict[str, npt.NDArray[Any]]:
        """Return rows start:stop, `bin` and sidecars: (n_tokens,) each, rows end to end.

        Raises:
            VerifyError: a row is longer than the capacity, or a shard is truncated.
        """
        offsets = np.asarray(self.packs.row_offsets[start : stop + 1])
        samples = self._files.document_spans(self.packs.samples[int(offsets[0]) : int(offsets[-1])])
        offsets = offsets - offsets[0]
        lengths = np.add.reduceat(samples.lengths, offsets[:-1])
        if lengths.max() > self.capacity:
            raise VerifyError(f"pack index: a row of {lengths.max()} tokens, not {self.capacity}")
        padding_before = np.cumsum(self.capacity - lengths) - (self.capacity - lengths)
        targets = samples.targets + np.repeat(padding_before, np.diff(offsets))
        by_shard = np.argsort(samples.shards, kind="stable")  # few files are opened
        columns = (samples.shards, samples.starts, samples.lengths, targets)
        spans = Spans(*(column[by_shard] for column in columns))
        gathered: dict[str, npt.NDArray[Any]] = {}
        for ending, dtype in self._files.dtypes.items():
            padding = self.pad_id if ending == "bin" else 0
            gathered[ending] = np.full((stop - start) * self.capacity, padding, dtype)
            self._files.read(spans, ending, gathered[ending])
        return gathered


def open_rows(directory: Path, manifest: dict[str, Any], split: str) -> PackReader:
    """Return the reader of a split's rows; raises like `open_packs`, and when read `PackReader`."""
    return PackReader(
        Documents(directory, manifest, split),
        open_packs(directory, split),
        manifest["packs"][split]["capacity"],
        manifest["tokenizer"]["eos"]["id"],
    )


def write_packed_rows(
    directory: Path, manifest: dict[str, Any], algorithm: str, *, shard_bytes: int = SHARD_BYTES
) -> tuple[list[FileEntry], dict[str, list[dict[str, Any]]]]:
    """Write every packed row of a dataset, padded with eos; each is one document of its `.idx`.

    Memory: some blocks of `BLOCK_TOKENS`. The manifest must have `dtype`, `tokenizer`, `shards`,
    `mask` and `packs`. A `.bin` has at most `shard_bytes`, but at least one row.

    Returns:
        The files written, and the manifest's entries for the shards of every split, in order.

    Raises:
        VerifyError: a shard or the pack index is broken.
        StorageError: the rows cannot be written.
    """
    files: list[FileEntry] = []
    rows: dict[str, list[dict[str, Any]]] = {}
    dtype = np.dtype(manifest["dtype"]).newbyteorder("<")
    for split in manifest["packs"]:
        source = open_rows(directory, manifest, split)
        n_rows, rows[split] = source.packs.n_rows, []
        most_rows = max(1, shard_bytes // (source.capacity * dtype.itemsize))
        for number, start in enumerate(range(0, n_rows, most_rows)):
            stem, stop = packed_stem(split, number), min(start + most_rows, n_rows)
            writer = ShardWriter(
                directory, split, stem, dtype, sidecars_of(manifest), algorithm=algorithm
            )
            try:
                for first in range(start, stop, source.block_rows):
                    last = min(first + source.block_rows, stop)
                    bodies = source.rows(first, last)
                    lengths = np.full(last - first, source.capacity, np.int64)
                    writer.append(bodies.pop("bin"), lengths, bodies)
                entry = writer.commit()
            except BaseException:
                writer.discard()
                close_files()
                raise
            files += entry.files
            rows[split].append(entry.as_row())
    close_files()
    return files, rows


def _sorted_by(keys: npt.NDArray[np.int64], n: int) -> npt.NDArray[np.int64]:
    """Return 0 … n - 1 sorted by `keys` (below 2^31, overwritten); equal keys stay in order.

    Sorting integers that combine key and number takes a third of the time of a stable argsort.
    """
    bits = max(1, (n - 1).bit_length())
    keys <<= bits
    keys |= np.arange(n)
    keys.sort()
    keys &= (1 << bits) - 1
    return keys


def _in_order(row_of: npt.NDArray[np.int64], n_rows: int) -> Packs:
    """Return rows in the order of their first sample, from the row of each sample (overwritten)."""
    n = len(row_of)
    first = np.full(n_rows, n)
    np.minimum.at(first, row_of, np.arange(n))
    rank = np.empty(n_rows, np.int64)
    rank[np.argsort(first)] = np.arange(n_rows)
    row_of[:] = rank[row_of]
    row_offsets = np.zeros(n_rows + 1, np.int64)
    np.cumsum(np.bincount(row_of, minlength=n_rows), out=row_offsets[1:])
    return Packs(row_offsets, _sorted_by(row_of, n))


@dataclass(slots=True)
class _Rows:
    """The rows so far, as ranges of their numbers in the order of creation, by their free room.

    `spaces`: all rooms of rows, increasing. `queues`: the rows of each room, in the order in which
    they reached it. `placed`: the placements in order, three numbers each: the first row, rows, and
    samples that each of them took.
    """

    capacity: int
    n: int = 0
    spaces: list[int] = field(default_factory=list)
    queues: dict[int, deque[tuple[int, int]]] = field(default_factory=dict)
    placed: array[int] = field(default_factory=lambda: array("q"))

    def take(self, length: int, count: int) -> None:
        """Place `count` samples of one length, not longer than those before."""
        best = bisect_left(self.spaces, length)
        changed: list[tuple[int, int, int]] = []
        while count:
            if best == len(self.spaces):
                n_new = -(-count // (self.capacity // length))
                self._put(self.capacity, self.n, self.n + n_new)
                self.n += n_new
            space = self.spaces[best]
            queue = self.queues[space]
            start, stop = queue.popleft()
            most = space // length
            n_rows, n_each = max(1, min(stop - start, count // most)), min(count, most)
            self.placed.extend((start, n_rows, n_each))
            changed.append((space - n_each * length, start, start + n_rows))
            count -= n_rows * n_each
            if start + n_rows < stop:
                queue.appendleft((start + n_rows, stop))
            if not queue:
                del self.queues[space], self.spaces[best]
        for space, start, stop in changed:
            self._put(space, start, stop)

    def _put(self, space: int, start: int, stop: int) -> None:
        """Queue rows that have reached a room; full ones are done."""
        queue = self.queues.get(space)
        if queue is not None and queue[-1][1] == start:
            queue[-1] = (queue[-1][0], stop)
        elif queue is not None:
            queue.append((start, stop))
        elif space:
            insort(self.spaces, space)
            self.queues[space] = deque([(start, stop)])

    def of_samples(self) -> npt.NDArray[np.int64]:
        """Return the row of every sample, in the order of placement: (n_samples,)."""
        starts, n_rows, n_each = np.array(self.placed, np.int64).reshape(-1, 3).T
        firsts = np.cumsum(n_rows) - n_rows
        taking = np.repeat(starts - firsts, n_rows)
        taking += np.arange(len(taking))
        return np.repeat(taking, np.repeat(n_each, n_rows))
