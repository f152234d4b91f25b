"""Files, and how a large one is cut into slices that can be read alone."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from tokmill.errors import StorageError
from tokmill.sources.compressed import frame_starts
from tokmill.sources.streams import unreadable
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of records.

    `path`: as given or found, with forward slashes; '-' is standard input, 'hf:NAME' a Hub dataset.
    `format`: jsonl, array, csv, parquet, text, arrow or hub. `compression`: '', gz or zst.
    `stamp`: the revision of a Hub dataset, else ''.
    """

    path: str
    format: str
    compression: str
    n_bytes: int
    mtime_ns: int
    stamp: str


@dataclass(frozen=True, slots=True)
class Slice:
    """A piece of a file that can be read alone; 0 to -1 is the whole file.

    `start`, `stop`: bytes of JSON Lines (stored bytes, at frames, if compressed), row groups of
    Parquet, record batches of Arrow. `n_bytes`: the stored bytes that it stands for.
    """

    file: SourceFile
    start: int
    stop: int
    n_bytes: int

    @property
    def is_whole(self) -> bool:
        """Say whether the slice is a whole file."""
        return (self.start, self.stop) == (0, -1)


def check_unchanged(file: SourceFile) -> None:
    """Make sure that a file is still the one that the plan was made from.

    Raises:
        StorageError: its size or time has changed, or it is gone.
    """
    if file.path == "-" or file.format == "hub":
        return
    try:
        stat = os.stat(file.path)  # noqa: PTH116  asked of every file, and half of it is Path's
    except OSError as error:
        raise unreadable(file.path, error) from None
    if (stat.st_size, stat.st_mtime_ns) != (file.n_bytes, file.mtime_ns):
        raise StorageError(
            f"{file.path}: changed while it was read: {plural(file.n_bytes, 'byte')} when the run "
            f"began, {stat.st_size:,} now; run again with --overwrite when nothing writes to it"
        )


def cut(file: SourceFile, part_bytes: int) -> list[Slice]:
    """Cut a file of more than `part_bytes` into slices of about so many stored bytes, if it can be.

    JSON Lines are cut into equal ranges of bytes (a record that runs over an end belongs to the
    slice before), zstandard ones at frames; Parquet by row groups, Arrow by record batches.
    Anything else is one slice.

    Raises:
        StorageError: the file cannot be read or is not what its ending says.
    """
    if file.n_bytes <= part_bytes:
        return [Slice(file, 0, -1, file.n_bytes)]
    kind = file.format, file.compression
    if kind == ("jsonl", ""):
        return _equal_ranges(file, part_bytes)
    if kind == ("jsonl", "zst"):
        return _frame_ranges(file, part_bytes)
    if file.format in ("parquet", "arrow"):
        return _grouped(file, _unit_bytes(file), part_bytes)
    return [Slice(file, 0, -1, file.n_bytes)]


def _equal_ranges(file: SourceFile, part_bytes: int) -> list[Slice]:
    n_slices = -(-file.n_bytes // part_bytes)
    bounds = [file.n_bytes * i // n_slices for i in range(n_slices + 1)]
    return [Slice(file, start, stop, stop - start) for start, stop in pairwise(bounds)]


def _frame_ranges(file: SourceFile, part_bytes: int) -> list[Slice]:
    starts = frame_starts(file.path)
    sizes = [stop - start for start, stop in pairwise([*starts, file.n_bytes])]
    groups = _group(sizes, part_bytes)
    if len(groups) < 2:
        return [Slice(file, 0, -1, file.n_bytes)]
    bounds = [*(starts[first] for first, _ in groups), file.n_bytes]
    return [Slice(file, start, stop, stop - start) for start, stop in pairwise(bounds)]


def _unit_bytes(file: SourceFile) -> list[int]:
    """Give the stored bytes of each unit that a file can be cut at."""
    if file.format == "parquet":
        from tokmill.sources.parquet import group_bytes

        return group_bytes(file.path)
    from tokmill.sources.arrow import batch_rows

    rows = batch_rows(file.path)
    return [file.n_bytes * n_rows // max(1, sum(rows)) for n_rows in rows]


def _grouped(file: SourceFile, sizes: Sequence[int], part_bytes: int) -> list[Slice]:
    """Give slices of whole units; the slices' bytes add up to the file's."""
    groups = _group(sizes, part_bytes)
    if len(groups) < 2:
        return [Slice(file, 0, -1, file.n_bytes)]
    ends = list(accumulate(sizes))
    bounds = [file.n_bytes * ends[stop - 1] // max(1, ends[-1]) for _, stop in groups]
    bounds[-1] = file.n_bytes
    return [
        Slice(file, first, last, stop - start)
        for (first, last), (start, stop) in zip(groups, pairwise([0, *bounds]), strict=True)
    ]


def _group(sizes: Sequence[int], part_bytes: int) -> list[tuple[int, int]]:
    """Group neighbours to at most `part_bytes`; a larger one stands alone."""
    groups: list[tuple[int, int]] = []
    first = n_bytes = 0
    for i, size in enumerate(sizes):
        if i > first and n_bytes + size > part_bytes:
            groups.append((first, i))
            first, n_bytes = i, 0
        n_bytes += size
    return [*groups, (first, len(sizes))] if sizes else groups
