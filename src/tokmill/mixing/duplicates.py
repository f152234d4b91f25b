"""Find documents with equal hashes in sorted runs on the disk; memory is that of one bucket.

A bucket is a range of hashes. Hashes are even, so all buckets have about the same size; each is
read from every run, where it is a range, and sorted by hash and number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokmill.mixing.survey import DUPLICATE, MARKED, open_reasons

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

BUCKET_DOCUMENTS = 2 << 20
"""Documents of a bucket: 48 MiB of hashes, and twice as much while they are sorted."""


def find_duplicates(
    directory: Path, firsts: list[int], bucket: tuple[int, int], n_val: int, *, marks: bool | None
) -> tuple[int, int]:
    """Write the reasons of documents of a bucket that equal one before.

    Args:
        directory: of the runs and the reasons.
        firsts: the first document of each chunk, which names its run.
        bucket: its number, and the number of all.
        n_val: documents of val, which are those with the lowest numbers.
        marks: True: they are kept, and marked; False: they are left out; None: only counted.

    Returns:
        How many there are, and how many of train equal one of val.
    """
    low, high = ((number << 64) // bucket[1] for number in (bucket[0], bucket[0] + 1))
    paths = [directory / f"hashes-{first}.npy" for first in firsts]
    hashes = np.concatenate([_range(path, low, high) for path in paths], axis=1)
    hashes = hashes[:, np.lexsort(hashes[::-1])]
    numbers = hashes[2].astype(np.int64)
    is_equal = np.zeros(len(numbers), bool)
    is_equal[1:] = (hashes[:2, 1:] == hashes[:2, :-1]).all(axis=0)
    groups = np.cumsum(~is_equal) - 1
    in_val = (numbers < n_val)[~is_equal]
    n_overlap = int(np.count_nonzero(in_val[groups] & (numbers >= n_val)))
    if marks is not None:
        open_reasons(directory)[numbers[is_equal]] = MARKED if marks else DUPLICATE
    return int(np.count_nonzero(is_equal)), n_overlap


def _range(path: Path, low: int, high: int) -> npt.NDArray[np.uint64]:
    """Return the hashes of a run whose upper halves are `low` to below `high`: (3, n)."""
    run = np.load(path, mmap_mode="r")
    start = int(np.searchsorted(run[0], np.uint64(low)))
    stop = run.shape[1] if high >> 64 else int(np.searchsorted(run[0], np.uint64(high)))
    return np.array(run[:, start:stop])
