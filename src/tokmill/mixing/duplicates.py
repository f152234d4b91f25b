"""Equal documents of a mix: their hashes in runs on disk, compared bucket by bucket.

Each chunk has a run of the hashes of its documents, sorted. A bucket is a range of hashes. Hashes
are even, so all buckets have about the same size; each is read from every run, where it is a range,
and sorted by hash and number. So memory does not grow with the mix.

Documents are left out by their numbers among all inputs, before anything is chosen. They are marked
by their places in the mix, which are known when everything is chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokmill.dataset.checksum import document_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.mixing.inputs import Chunk
    from tokmill.mixing.temporary import Temporary

BUCKET_DOCUMENTS = 2 << 20
"""Documents of a bucket: 48 MiB of hashes, and twice as much while they are sorted."""

_MARKS = "marks"


@dataclass(frozen=True, slots=True)
class Equal:
    """Documents that equal one with a lower number.

    `numbers`: (n,) int64. `n_overlap`: how many documents of train equal one of val.
    """

    numbers: npt.NDArray[np.int64]
    n_overlap: int


def hashes_of(batch: pa.RecordBatch) -> list[bytes]:
    """Return BLAKE3-128 of the ids of each document, and of its mask if it has one."""
    ids = (tokens.as_buffer() for tokens in batch.column("bin"))
    if "mask" not in batch.schema.names:
        return list(map(document_hash, ids))
    return list(map(document_hash, ids, (mask.as_buffer() for mask in batch.column("mask"))))


def hashes_name(chunk: Chunk) -> str:
    """Return the name of a chunk's run of hashes, with the numbers of documents of all inputs."""
    return f"hashes-{chunk.first}"


def places_name(chunk: Chunk) -> str:
    """Return the name of a chunk's run of hashes, with first places of documents in the mix."""
    return f"places-{chunk.first}"


def write_hashes(
    temporary: Temporary, name: str, batch: pa.RecordBatch, numbers: npt.NDArray[np.int64]
) -> None:
    """Write a run: (3, n) uint64, the halves of each hash and the document's number; sorted."""
    halves = np.frombuffer(b"".join(hashes_of(batch)), ">u8").reshape(-1, 2)
    run = np.stack([halves[:, 0], halves[:, 1], numbers]).astype(np.uint64)
    _write_run(temporary, name, run[:, np.lexsort(run[::-1])])


def write_places(temporary: Temporary, chunk: Chunk, places: npt.NDArray[np.int64]) -> None:
    """Write the run of a chunk again, with places in the mix: (n,) int64, -1 if it has none."""
    run = np.array(_run(temporary, hashes_name(chunk)))
    of_run = places[run[2].astype(np.int64) - chunk.first]
    is_placed = of_run >= 0
    run[2] = of_run
    _write_run(temporary, places_name(chunk), run[:, is_placed])


def find_equal(
    temporary: Temporary, names: Sequence[str], bucket: int, n_buckets: int, n_val: int
) -> Equal:
    """Return the documents of a bucket that equal one before.

    `names`: of the runs. `n_val`: documents of val, which are those with the lowest numbers.
    """
    low, high = ((number << 64) // n_buckets for number in (bucket, bucket + 1))
    hashes = np.concatenate([_range(_run(temporary, name), low, high) for name in names], axis=1)
    hashes = hashes[:, np.lexsort(hashes[::-1])]
    numbers = hashes[2].astype(np.int64)
    is_equal = np.zeros(len(numbers), bool)
    is_equal[1:] = (hashes[:2, 1:] == hashes[:2, :-1]).all(axis=0)
    groups = np.cumsum(~is_equal) - 1
    has_val = (numbers < n_val)[~is_equal]
    n_overlap = int(np.count_nonzero(has_val[groups] & (numbers >= n_val)))
    return Equal(numbers[is_equal], n_overlap)


def _write_run(temporary: Temporary, name: str, run: npt.NDArray[np.uint64]) -> None:
    with temporary.new(name) as file:
        file.write(np.ascontiguousarray(run).data)


def _run(temporary: Temporary, name: str) -> npt.NDArray[np.uint64]:
    """Map a run: (3, n) uint64."""
    return temporary.map(name, np.uint64).reshape(3, -1)


def _range(run: npt.NDArray[np.uint64], low: int, high: int) -> npt.NDArray[np.uint64]:
    """Return the hashes of a run whose upper halves are `low` to below `high`: (3, n)."""
    start = int(np.searchsorted(run[0], np.uint64(low)))
    stop = run.shape[1] if high >> 64 else int(np.searchsorted(run[0], np.uint64(high)))
    return np.array(run[:, start:stop])


def make_marks(temporary: Temporary, n_documents: int) -> None:
    """Make the file of marks, all 0, unless it is there."""
    temporary.make_zeros(_MARKS, n_documents)


def open_marks(temporary: Temporary) -> npt.NDArray[np.uint8]:
    """Map the marks of all documents of the mix, val first: (n,) uint8, which can be written."""
    return temporary.map_writable(_MARKS)
