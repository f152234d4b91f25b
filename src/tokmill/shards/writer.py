"""Writes one shard: `.bin`, `.idx` and their sha256, atomically."""

from __future__ import annotations

import hashlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.laps import Laps, add_seconds
from tokmill.shards.index import IndexWriter
from tokmill.shards.layout import shard_stem
from tokmill.storage import PendingFile

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

    import numpy.typing as npt

MOST_PENDING = 3
"""Writes that wait for the writing thread at most."""

_LEAST_TOKENS = 32 << 10
"""Fewer are held until more come: handing work to a thread costs 50 us."""

_HASH_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A committed file: name relative to the dataset, size, sha256 in hex."""

    name: str
    n_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """A committed shard."""

    split: str
    n_documents: int
    n_tokens: int
    files: tuple[FileEntry, ...]


class ShardWriter:
    """An open shard of one split.

    Hashing and writing happen on a thread of its own, in order; memory is what about `MOST_PENDING`
    appends bring, and an error of one of them is raised by a later call. `stage_s`: seconds taken
    so far, by stage.
    """

    def __init__(
        self, directory: Path, split: str, part: int, step: int, dtype: np.dtype[np.unsignedinteger]
    ) -> None:
        stem = shard_stem(split, part, step)
        self.split = split
        self.n_documents = 0
        self.n_tokens = 0
        self._dtype = dtype
        self._sha256 = hashlib.sha256()
        self._pending: deque[Future[dict[str, float]]] = deque()
        self._held: list[tuple[npt.NDArray[Any], npt.NDArray[np.int64]]] = []
        self._n_held = 0
        self._bin = PendingFile(directory / f"{stem}.bin")
        try:
            self._idx = PendingFile(directory / f"{stem}.idx")
        except BaseException:
            self._bin.discard()
            raise
        self._index = IndexWriter(self._idx, dtype.itemsize)
        self._thread = ThreadPoolExecutor(1, f"tokmill-{stem}")
        self.stage_s: dict[str, float] = {}

    def append(
        self, tokens: npt.NDArray[np.unsignedinteger], lengths: npt.NDArray[np.int64]
    ) -> None:
        """Add whole documents: their tokens end to end, and the length of each.

        Args:
            tokens: (n,) of the shard's dtype, eos included.
            lengths: (n_documents,), summing to n.

        Raises:
            TypeError: `tokens` has another dtype; narrowing here would go unchecked.
            StorageError: the bytes cannot be written.
        """
        tokens = tokens.astype(self._dtype, casting="equiv", copy=False)
        self._held.append((tokens, lengths))
        self._n_held += len(tokens)
        self.n_documents += len(lengths)
        self.n_tokens += len(tokens)
        if self._n_held >= _LEAST_TOKENS:
            self._hand_over()

    def _hand_over(self) -> None:
        if not self._held:
            return
        tokens, lengths = (
            parts[0] if len(parts) == 1 else np.concatenate(parts)
            for parts in zip(*self._held, strict=True)
        )
        self._held, self._n_held = [], 0
        data = np.ascontiguousarray(tokens).view(np.uint8).data
        self._wait(MOST_PENDING - 1)
        self._pending.append(self._thread.submit(self._take, data, lengths))

    def _take(self, data: memoryview, lengths: npt.NDArray[np.int64]) -> dict[str, float]:
        laps = Laps()
        self._sha256.update(data)
        laps.end("hash")
        self._bin.write(data)
        self._index.append(lengths)
        laps.end("write")
        return laps.seconds

    def _wait(self, most: int) -> None:
        while len(self._pending) > most:
            add_seconds(self.stage_s, self._pending.popleft().result())

    def commit(self) -> ShardEntry:
        """Make both files appear, `.idx` first so that a `.bin` never stands without its index."""
        self._hand_over()
        self._wait(0)
        self._thread.shutdown()
        laps = Laps()
        self._index.finish()
        idx_sha256 = _sha256_of(self._idx)
        idx_bytes = self._idx.file.seek(0, 2)
        self._idx.commit()
        self._bin.commit()
        laps.end("write")
        add_seconds(self.stage_s, laps.seconds)
        files = (
            FileEntry(
                self._bin.path.name, self.n_tokens * self._dtype.itemsize, self._sha256.hexdigest()
            ),
            FileEntry(self._idx.path.name, idx_bytes, idx_sha256),
        )
        return ShardEntry(self.split, self.n_documents, self.n_tokens, files)

    def discard(self) -> None:
        """Remove what was written; nothing appears."""
        self._thread.shutdown(cancel_futures=True)
        self._bin.discard()
        self._idx.discard()


def _sha256_of(pending: PendingFile) -> str:
    pending.file.seek(0)
    digest = hashlib.sha256()
    while chunk := pending.file.read(_HASH_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def write_file(directory: Path, name: str, data: bytes) -> FileEntry:
    """Commit a small file of the dataset and describe it."""
    pending = PendingFile(directory / name)
    try:
        pending.write(data)
        pending.commit()
    except BaseException:
        pending.discard()
        raise
    return FileEntry(name, len(data), hashlib.sha256(data).hexdigest())
