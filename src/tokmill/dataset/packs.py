"""The pack index: the samples of each packed row of a split.

| file                     | holds                                                      |
|--------------------------|------------------------------------------------------------|
| `packs-SPLIT-rows.bin`   | (n_rows + 1,) i64: row r is samples[rows[r]:rows[r + 1]]    |
| `packs-SPLIT-samples.bin`| (n_samples,) i64: numbers in the split, dataset order, from 0 |

Little-endian, no header. Neither file is of use without the other.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.idx_file import read_index
from tokmill.dataset.layout import pack_names
from tokmill.dataset.writer import write_hashed_chunks
from tokmill.errors import VerifyError
from tokmill.storage import read_errors
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokmill.dataset.checksum import FileEntry

_CHUNK_ITEMS = 1 << 20


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
    return [
        write_hashed_chunks(directory, name, _chunks(values), algorithm)
        for name, values in zip(pack_names(split), (row_offsets, samples), strict=True)
    ]


def _chunks(values: npt.NDArray[np.int64]) -> Iterator[memoryview]:
    for start in range(0, len(values), _CHUNK_ITEMS):
        chunk = values[start : start + _CHUNK_ITEMS].astype("<i8", copy=False)
        yield np.ascontiguousarray(chunk).view(np.uint8).data


def open_packs(directory: Path, split: str) -> Packs:
    """Map the pack index of a split.

    Raises:
        VerifyError: a file is missing, or its size is no multiple of 8 bytes.
        StorageError: the user may not read a file.
    """
    rows, samples = (_mapped(directory / name) for name in pack_names(split))
    return Packs(rows, samples)


def _mapped(path: Path) -> npt.NDArray[np.int64]:
    with read_errors(path):
        return np.memmap(path, dtype="<i8", mode="r")


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
        path = directory / f"{entry['name']}.idx"
        with read_errors(path):
            found, _, _ = read_index(path)
        if len(found) != entry["documents"]:
            raise VerifyError(
                f"{path}: {plural(len(found), 'document')}, the manifest says {entry['documents']}"
            )
        lengths[start : start + len(found)] = found
        start += len(found)
    return lengths


def numbers_in_dataset(
    manifest: Mapping[str, Any], split: str, numbers: Sequence[int]
) -> list[int]:
    """Return the positions in the dataset of samples that are numbered within a split.

    Raises:
        VerifyError: the split has no sample of such a number.
    """
    starts, firsts, in_split, in_dataset = [], [], 0, 0
    for shard in manifest["shards"]:
        if shard["split"] == split:
            starts.append(in_split)
            firsts.append(in_dataset)
            in_split += shard["documents"]
        in_dataset += shard["documents"]
    wrong = [number for number in numbers if not 0 <= number < in_split]
    if wrong:
        raise VerifyError(
            f"packs of {split}: sample {wrong[0]} does not exist, the split has {in_split}"
        )
    at = [bisect_right(starts, number) - 1 for number in numbers]
    return [firsts[i] + number - starts[i] for i, number in zip(at, numbers, strict=True)]
