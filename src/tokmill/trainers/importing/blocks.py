"""Files of tokens to import, and their content in blocks of bounded size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tokmill.errors import UsageError, VerifyError
from tokmill.recipes.spec import Increments
from tokmill.storage import open_regular, read_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

BLOCK_TOKENS = 4 << 20
"""Tokens that are read at once."""


@dataclass(frozen=True, slots=True)
class TokenFile:
    """One file of tokens with what stands beside it.

    Attributes:
        path: of the tokens.
        split: `train` or `val`.
        dtype: of a token on disk.
        n_tokens: number of tokens in the file.
        index: the file with the ends of documents; None if eos ends them.
        mask: the file with a byte for each token, 1 = trained; None without masks.
    """

    path: Path
    split: str
    dtype: np.dtype[Any]
    n_tokens: int
    index: Path | None = None
    mask: Path | None = None

    @property
    def n_bytes(self) -> int:
        """Return the bytes of the tokens."""
        return self.n_tokens * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Block:
    """The next tokens of a file, with the documents that end among them.

    `tokens`: (n,) of the file's dtype. `ends`: (n_documents,) int64, rising or equal, from 0 to n:
    where documents end in `tokens`. The tokens after the last end go on in the next block. `mask`:
    (n,) uint8, or None.
    """

    tokens: npt.NDArray[Any]
    ends: npt.NDArray[np.int64]
    mask: npt.NDArray[np.uint8] | None = None


class Importer(Protocol):
    """Reads the files of a trainer. `title`: the trainer's name as its users write it."""

    title: str

    def find(self, path: Path, split: str, dtype: str) -> list[TokenFile]:
        """Return the files of tokens that a path of the command line names, in their order.

        `dtype`: `uint16` or `uint32` if the user names it, else ''.

        Raises:
            UsageError: there are none, or they are of another layout.
            VerifyError: they are damaged.
        """

    def read(self, file: TokenFile, eos_id: int) -> Iterator[Block]:
        """Yield the tokens of a file with the ends of its documents; in bounded memory.

        Raises:
            VerifyError: the file is damaged.
        """


class Watcher(Protocol):
    """Follows an import."""

    def begin(self, total_bytes: int) -> None:
        """Receive the bytes of all tokens, before the first is read."""

    def progressed(self, progress: Increments) -> None:
        """Receive what was written since the last call."""


def read_array(
    path: Path, dtype: np.dtype[Any], count: int, offset: int = 0
) -> Iterator[npt.NDArray[Any]]:
    """Yield `count` values of a file from byte `offset` on, `BLOCK_TOKENS` at most at a time.

    Raises:
        VerifyError: the file is shorter, or cannot be read.
    """
    with read_errors(path), open_regular(path, follow_links=True) as file:
        file.seek(offset)
        while count:
            wanted = min(count, BLOCK_TOKENS)
            data = file.read(wanted * dtype.itemsize)
            if len(data) != wanted * dtype.itemsize:
                raise ValueError("shorter than its index says")
            count -= wanted
            yield np.frombuffer(data, dtype)


def read_mask(path: Path, count: int, offset: int = 0) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield `count` flags of a file from byte `offset` on, as `read_array` does.

    Raises:
        VerifyError: one is neither 0 nor 1, or the file cannot be read.
    """
    for part in read_array(path, np.dtype("u1"), count, offset):
        if int(part.max()) > 1:
            raise VerifyError(f"{path}: holds {int(part.max())}, expected 0 or 1")
        yield part


def joined(
    parts: Iterable[npt.NDArray[Any]],
    ends: Iterator[npt.NDArray[np.int64]],
    masks: Iterable[npt.NDArray[np.uint8]] | None = None,
) -> Iterator[Block]:
    """Yield blocks of the parts of a stream, each with the ends of documents that lie in it.

    `ends` count tokens from the start of the stream. Each of `masks` is as long as its part.
    """
    position = 0
    waiting = np.empty(0, np.int64)
    flags = iter(masks) if masks is not None else None
    for part in parts:
        stop = position + len(part)
        found = [waiting]
        while not len(found[-1]) or found[-1][-1] <= stop:
            more = next(ends, None)
            if more is None:
                break
            found.append(more)
        known = np.concatenate(found)
        n = int(np.searchsorted(known, stop, side="right"))
        mask = None if flags is None else next(flags)
        yield Block(part, known[:n] - position, mask)
        waiting, position = known[n:], stop


def watched(blocks: Iterator[Block], watcher: Watcher) -> Iterator[Block]:
    """Yield the blocks; the next one is asked for when a block is written."""
    for block in blocks:
        yield block
        n_bytes, n_documents = block.tokens.nbytes, len(block.ends)
        watcher.progressed(Increments(n_bytes, n_bytes, 0, n_documents, len(block.tokens)))


def files_below(path: Path, pattern: str, wanted: str) -> Sequence[Path]:
    """Return the file itself, or the files of a pattern below a directory, sorted.

    Raises:
        UsageError: there are none; `wanted` says what was expected.
    """
    paths = sorted(path.rglob(pattern)) if path.is_dir() else [path]
    found = [one for one in paths if one.is_file()]
    if not found:
        raise UsageError(f"{path}: expected {wanted}, found nothing")
    return found


def whole_tokens(path: Path, dtype: np.dtype[Any]) -> int:
    """Return how many tokens a file holds.

    Raises:
        UsageError: its size is no multiple of a token's.
    """
    n_bytes = path.stat().st_size
    if n_bytes % dtype.itemsize:
        raise UsageError(
            f"{path}: {n_bytes:,} bytes are no whole number of {dtype.itemsize}-byte tokens: "
            "choose another --dtype"
        )
    return n_bytes // dtype.itemsize
