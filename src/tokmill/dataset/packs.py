"""Packs of a split: the index, the samples of each packed row, and the rows as shards of their own.

| file                     | holds                                                      |
|--------------------------|------------------------------------------------------------|
| `packs-SPLIT-rows.bin`   | (n_rows + 1,) i64: row r is samples[rows[r]:rows[r + 1]]    |
| `packs-SPLIT-samples.bin`| (n_samples,) i64: numbers in the split, dataset order, from 0 |

Little-endian, no header. Neither file is of use without the other. A shard of packed rows has the
samples of each row end to end, and padding up to the length that all rows have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.documents import Documents, ShardFiles, Spans, close_files
from tokmill.dataset.idx_file import open_index
from tokmill.dataset.layout import SHARD_BYTES, SPLITS, pack_names, packed_stem
from tokmill.dataset.packing import MEMORY_BYTES_PER_SAMPLE, pack
from tokmill.dataset.reader import sidecars_of
from tokmill.dataset.writer import ShardWriter, write_hashed_chunks
from tokmill.errors import VerifyError
from tokmill.storage import read_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokmill.dataset.checksum import FileEntry

BLOCK_TOKENS = 1 << 20
"""Tokens of the rows that are read at a time, about."""

_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Packs:
    """The pack index of a split, mapped read-only.

    `row_offsets`: (n_rows + 1,) int64. `samples`: (n_samples,) int64, increasing within a row.
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


def numbers_in_dataset(
    manifest: Mapping[str, Any], split: str, numbers: Sequence[int]
) -> list[int]:
    """Return the positions in the dataset of samples that are numbered within a split.

    Raises:
        VerifyError: the split has no sample of such a number.
    """
    shards = manifest["shards"]
    counts = np.array([entry["documents"] for entry in shards], np.int64)
    is_of_split = np.array([entry["split"] == split for entry in shards], bool)
    firsts, stops = (np.cumsum(counts) - counts)[is_of_split], np.cumsum(counts[is_of_split])
    n_samples = int(stops[-1]) if len(stops) else 0
    for number in numbers:
        if not 0 <= number < n_samples:
            raise VerifyError(
                f"packs of {split}: sample {number} does not exist, the split has {n_samples}"
            )
    shard = np.searchsorted(stops, numbers, side="right")
    before = stops - counts[is_of_split]
    return [int(n) for n in numbers + firsts[shard] - before[shard]]


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
        packing = pack(lengths, capacity)
        files += write_pack_index(directory, split, packing.row_offsets, packing.order, algorithm)
        n_tokens = int(lengths.sum(dtype=np.int64))
        found = summary(packing.n_rows, len(lengths), n_tokens, capacity)
        packs[split] = {**found, "bytes_per_sample": MEMORY_BYTES_PER_SAMPLE}
    return files, packs


class RowReader:
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

    def lengths(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Return the tokens of rows start:stop without padding: (stop - start,)."""
        return np.add.reduceat(self._spans(start, stop).lengths, self._offsets(start, stop)[:-1])

    def _spans(self, start: int, stop: int) -> Spans:
        """Return the samples of rows start:stop, end to end."""
        offsets = self.packs.row_offsets
        return self._files.document_spans(
            self.packs.samples[int(offsets[start]) : int(offsets[stop])]
        )

    def _offsets(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        offsets = self.packs.row_offsets[start : stop + 1]
        return np.asarray(offsets - offsets[0])

    def rows(self, start: int, stop: int) -> dict[str, npt.NDArray[Any]]:
        """Return rows start:stop, `bin` and sidecars: (n_tokens,) each, rows end to end.

        Raises:
            VerifyError: a row is longer than the capacity, or a shard is truncated.
        """
        samples, offsets = self._spans(start, stop), self._offsets(start, stop)
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


def open_rows(directory: Path, manifest: dict[str, Any], split: str) -> RowReader:
    """Return the reader of a split's rows; raises like `open_packs`, and when read `open_entry`."""
    return RowReader(
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
                raise
            files += entry.files
            rows[split].append(entry.as_row())
    close_files()
    return files, rows
