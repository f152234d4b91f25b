"""A split as one stream of tokens: its spans are copied to files, cut, and compared.

Positions count tokens from the start of the split, over all its shards; spans are half-open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokmill.errors import VerifyError
from tokmill.storage import read_errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    import numpy.typing as npt

    from tokmill.trainers.source import ExportSource

_COMPARED_TOKENS = 4 << 20
_COMPARED_DOCUMENTS = 1 << 20


def copy_tokens(
    source: ExportSource, split: str, start: int, stop: int, file: BinaryIO | None
) -> None:
    """Append the tokens of a span to a file, and to the checksums of `source.sums`.

    Without a file, only to the checksums.

    Raises:
        VerifyError: a shard is shorter than the manifest says.
        OSError: the file cannot be written.
    """
    item_bytes = source.dtype.itemsize
    for path, first, last in _pieces(source, split, start, stop):
        source.sums.copy(path, first * item_bytes, last * item_bytes, file)


def read_tokens(
    source: ExportSource, split: str, start: int, stop: int
) -> npt.NDArray[np.unsignedinteger]:
    """Return the tokens of a short span, read from the files; raises `VerifyError`."""
    found = [np.empty(0, source.dtype)]
    for path, first, last in _pieces(source, split, start, stop):
        with read_errors(path):
            offset = first * source.dtype.itemsize
            found.append(np.fromfile(path, source.dtype, last - first, offset=offset))
    tokens = np.concatenate(found)
    if len(tokens) != stop - start:
        raise VerifyError(f"{source.directory}: a shard of {split} is shorter than its manifest")
    return tokens


def _pieces(
    source: ExportSource, split: str, start: int, stop: int
) -> Iterator[tuple[Path, int, int]]:
    """Yield the shards of a span: path of the tokens, first and last token inside it."""
    begin = 0
    for entry in source.entries(split):
        end = begin + entry["tokens"]
        if begin < stop and start < end:
            path = source.path(entry["name"], "bin")
            yield path, max(start, begin) - begin, min(stop, end) - begin
        begin = end


def cut_at_documents(
    source: ExportSource, split: str, most_tokens: int, fewest: int = 1
) -> list[int]:
    """Return where files that hold whole documents end, in tokens; the last one ends the stream.

    A file has at most `most_tokens`; a longer document has a file of its own. The files are about
    equally long, so that none is too short for a trainer's batch. There are at least `fewest`,
    unless there are fewer documents. Time and memory grow with the number of files, not of
    documents.
    """
    total = source.n_tokens(split)
    n_files = max(fewest, -(-total // most_tokens))
    ends: list[int] = []
    start = begin = 0
    for shard in source.shards(split):
        item_bytes = shard.tokens.itemsize
        while (wanted := _file_end(start, total, n_files - len(ends), most_tokens)) < min(
            total, begin + len(shard.tokens)
        ):
            place = wanted - begin
            i = int(np.searchsorted(shard.offsets, place * item_bytes, side="right")) - 1
            found = shard.span(i)
            nearest = found.stop if found.stop - place < place - found.start else found.start
            if begin + nearest <= start or begin + nearest > start + most_tokens:
                nearest = found.start if begin + found.start > start else found.stop
            start = begin + nearest
            ends.append(start)
        begin += len(shard.tokens)
    if total > start:
        ends.append(total)
    return ends


def _file_end(start: int, total: int, n_left: int, most_tokens: int) -> int:
    """Return where the file that begins at `start` ends if all that are left are equally long."""
    n_needed = max(n_left, -(-(total - start) // most_tokens), 1)
    return start + -(-(total - start) // n_needed)


def check_tokens(
    source: ExportSource,
    split: str,
    start: int,
    found: npt.NDArray[np.unsignedinteger],
    path: Path,
) -> None:
    """Check that the tokens of a file are those of the stream from `start` on.

    Raises:
        VerifyError: one differs; the message has its position in the file.
    """
    begin = 0
    stop = start + len(found)
    for shard in source.shards(split):
        first, last = max(start, begin), min(stop, begin + len(shard.tokens))
        for at in range(first, last, _COMPARED_TOKENS):
            end = min(at + _COMPARED_TOKENS, last)
            ours, theirs = shard.tokens[at - begin : end - begin], found[at - start : end - start]
            if not np.array_equal(ours, theirs):
                i = int(np.flatnonzero(ours != theirs)[0])
                raise VerifyError(
                    f"{path}: token {at - start + i:,} is {theirs[i]}, "
                    f"{shard.name}.bin has {ours[i]}"
                )
        begin += len(shard.tokens)
    if stop > begin:
        raise VerifyError(f"{path}: {stop - begin:,} tokens more than the dataset")


def check_last_tokens(source: ExportSource, eos_id: int) -> None:
    """Check that every document ends with eos, since a reader tells them apart by it.

    Raises:
        VerifyError: one does not.
    """
    for split in source.splits:
        for shard in source.shards(split):
            for at in range(0, len(shard.lengths), _COMPARED_DOCUMENTS):
                part = slice(at, at + _COMPARED_DOCUMENTS)
                lasts = shard.offsets[part] // shard.tokens.itemsize + shard.lengths[part] - 1
                others = np.flatnonzero(shard.tokens[lasts] != eos_id)
                if len(others):
                    raise VerifyError(
                        f"{source.directory / shard.name}.bin: document {at + int(others[0]):,} "
                        f"does not end with eos ({eos_id})"
                    )
