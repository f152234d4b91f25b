"""Write one shard: `.bin`, its sidecars and `.idx`, with their checksums, atomically."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.checksum import Digest, FileEntry, digest_of
from tokmill.dataset.idx_file import IndexWriter
from tokmill.dataset.layout import ORIGIN, SIDECARS
from tokmill.dataset.origin_file import OriginEncoder, numbers_of
from tokmill.errors import StorageError
from tokmill.settings.schema import BLAKE3
from tokmill.storage import PendingFile, storage_errors
from tokmill.timing import StageTimer, add_seconds
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    import numpy.typing as npt

    from tokmill.timing import StageSeconds

MOST_PENDING = 3
"""Most writes that wait for the writing thread."""

_LEAST_TOKENS = 32 << 10
"""Fewer tokens wait for more: handing work to a thread costs 50 us."""


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """A committed shard; its `.bin` is the first of its files."""

    split: str
    n_documents: int
    n_tokens: int
    files: tuple[FileEntry, ...]

    def as_row(self, first_slice: int = 0) -> dict[str, Any]:
        """Return the shard's row in the manifest; `first_slice`: the number of its part's first."""
        has_origins = any(entry.name.endswith(f".{ORIGIN}") for entry in self.files)
        return {
            **({"first_slice": first_slice} if has_origins else {}),
            "name": self.files[0].name.removesuffix(".bin"),
            "split": self.split,
            "documents": self.n_documents,
            "tokens": self.n_tokens,
        }


class _Body:
    """A file with a value for every token, or the origin of every document, and its checksum."""

    def __init__(
        self, path: Path, dtype: np.dtype[Any], algorithm: str, resumed: FileEntry | None = None
    ) -> None:
        self.dtype = dtype
        self.encoder: OriginEncoder | None = None
        self.pending, self.digest = open_pending(path, algorithm, resumed)

    def entry(self) -> FileEntry:
        return self.digest.entry(self.pending.path.name)

    def as_bytes(self, values: npt.NDArray[Any]) -> memoryview:
        if self.encoder is not None:
            return memoryview(self.encoder.encode(values))
        return np.ascontiguousarray(values).view(np.uint8).data

    def encode_origins(self, n_documents: int) -> None:
        """Encode what is written from now on, after the origins of `n_documents`."""
        last = None
        if n_documents:
            last = numbers_of(np.memmap(self.pending.file, np.uint8, "r"), n_documents - 1)
        self.encoder = OriginEncoder(n_documents, last)


class ShardWriter:
    """An open shard of one split; `stem` is its name without ending.

    `sidecars`: endings of the files beside the tokens, of `SIDECARS` and `ORIGIN`. `algorithm`: of
    the checksums. `resumed`: returned by `checkpoint` in an earlier attempt; its files are appended
    to, and a `StorageError` means that they have changed. `stage_s`: seconds so far, by stage.

    One thread hashes and writes, in order. Memory: about `MOST_PENDING` appends. An error of the
    thread is raised by a later call.
    """

    def __init__(
        self,
        directory: Path,
        split: str,
        stem: str,
        dtype: np.dtype[np.unsignedinteger],
        sidecars: Sequence[str] = (),
        *,
        algorithm: str = BLAKE3,
        resumed: ShardEntry | None = None,
    ) -> None:
        self.split = split
        self._algorithm = algorithm
        self.n_documents = resumed.n_documents if resumed else 0
        self.n_tokens = resumed.n_tokens if resumed else 0
        self._sidecars = tuple(sidecars)
        self._pending: deque[Future[dict[str, StageSeconds]]] = deque()
        self._waiting: list[tuple[npt.NDArray[Any], ...]] = []
        self._n_waiting = 0
        self._bodies: list[_Body] = []
        endings = ("bin", "idx", *sidecars)
        parts = dict(zip(endings, resumed.files, strict=True)) if resumed else {}
        try:
            for ending in ("bin", *sidecars):
                kind = {**SIDECARS, "bin": dtype, ORIGIN: np.dtype(np.int64)}[ending]
                path = directory / f"{stem}.{ending}"
                self._bodies.append(_Body(path, kind, algorithm, parts.get(ending)))
                if ending == ORIGIN:
                    self._bodies[-1].encode_origins(self.n_documents)
            self._idx, _ = open_pending(directory / f"{stem}.idx", algorithm, parts.get("idx"))
        except BaseException:
            self._discard_bodies()
            raise
        self._index = IndexWriter(self._idx, dtype.itemsize, self.n_documents)
        self._thread = ThreadPoolExecutor(1, f"tokmill-{stem}")
        self.stage_s: dict[str, StageSeconds] = {}

    def append(
        self,
        tokens: npt.NDArray[np.unsignedinteger],
        lengths: npt.NDArray[np.int64],
        sidecars: Mapping[str, npt.NDArray[Any]] | None = None,
    ) -> None:
        """Add documents: their tokens end to end, and the length of each.

        Args:
            tokens: (n,) of the shard's dtype, eos included.
            lengths: (n_documents,), summing to n.
            sidecars: (n,) each, of its own dtype, for exactly the shard's endings; of `origin`,
                (n_documents, 2).

        Raises:
            TypeError: an array has another dtype; a cast would be unchecked.
            ValueError: a sidecar is missing, unknown or of another length.
            StorageError: the bytes cannot be written.
        """
        sidecars = sidecars or {}
        if tuple(sidecars) != self._sidecars or any(
            len(b) != len(lengths if ending == ORIGIN else tokens) for ending, b in sidecars.items()
        ):
            found = {ending: len(body) for ending, body in sidecars.items()}
            raise ValueError(
                f"{plural(len(tokens), 'token')} with {found}, expected {self._sidecars}"
            )
        values = (
            array.astype(body.dtype, casting="equiv", copy=False)
            for array, body in zip((tokens, *sidecars.values()), self._bodies, strict=True)
        )
        self._waiting.append((lengths, *values))
        self._n_waiting += len(tokens)
        self.n_documents += len(lengths)
        self.n_tokens += len(tokens)
        if self._n_waiting >= _LEAST_TOKENS:
            self._hand_over()

    def _hand_over(self) -> None:
        if not self._waiting:
            return
        lengths, *values = (
            parts[0] if len(parts) == 1 else np.concatenate(parts)
            for parts in zip(*self._waiting, strict=True)
        )
        self._waiting, self._n_waiting = [], 0
        self._wait(MOST_PENDING - 1)
        self._pending.append(self._thread.submit(self._take, values, lengths))

    def _take(
        self, values: Sequence[npt.NDArray[Any]], lengths: npt.NDArray[np.int64]
    ) -> dict[str, StageSeconds]:
        timer = StageTimer()
        data = [body.as_bytes(array) for body, array in zip(self._bodies, values, strict=True)]
        for body, chunk in zip(self._bodies, data, strict=True):
            body.digest.update(chunk)
        timer.end("hash")
        for body, chunk in zip(self._bodies, data, strict=True):
            body.pending.write(chunk)
        self._index.append(lengths)
        timer.end("write")
        return timer.seconds

    def _wait(self, most: int) -> None:
        while len(self._pending) > most:
            add_seconds(self.stage_s, self._pending.popleft().result())

    def commit(self) -> ShardEntry:
        """Make all files appear, `.bin` last: it never exists without index and sidecars."""
        self._hand_over()
        self._wait(0)
        self._thread.shutdown()
        timer = StageTimer()
        self._index.finish()
        idx = _digest_of(self._idx, self._algorithm).entry(self._idx.path.name)
        self._idx.commit()
        for body in reversed(self._bodies):
            body.pending.commit()
        timer.end("write")
        add_seconds(self.stage_s, timer.seconds)
        tokens, *sidecars = (body.entry() for body in self._bodies)
        return ShardEntry(self.split, self.n_documents, self.n_tokens, (tokens, idx, *sidecars))

    def checkpoint(self) -> ShardEntry:
        """Make the shard durable so far, and return it with the temporary names of its files."""
        self._hand_over()
        self._wait(0)
        for body in self._bodies:
            body.pending.sync()
        self._idx.sync()
        idx = _digest_of(self._idx, self._algorithm).entry(self._idx.temporary)
        tokens, *sidecars = (body.digest.entry(body.pending.temporary) for body in self._bodies)
        return ShardEntry(self.split, self.n_documents, self.n_tokens, (tokens, idx, *sidecars))

    def discard(self, keep: Collection[str] = ()) -> None:
        """Close the files, and remove those whose temporary names are not in `keep`."""
        self._thread.shutdown(cancel_futures=True)
        self._discard_bodies(keep)
        self._idx.discard(keep)

    def _discard_bodies(self, keep: Collection[str] = ()) -> None:
        for body in self._bodies:
            body.pending.discard(keep)


def open_pending(
    path: Path, algorithm: str, resumed: FileEntry | None = None
) -> tuple[PendingFile, Digest]:
    """Open a new file, or the file of a checkpoint to append to it; its bytes are hashed again.

    Raises:
        StorageError: it cannot be opened, or differs from the checkpoint.
    """
    if resumed is None:
        return PendingFile(path), Digest(algorithm)
    temporary = resumed.name.rpartition("/")[2]
    pending = PendingFile(path, resumed=temporary, n_bytes=resumed.n_bytes)
    with storage_errors(path):
        digest = _digest_of(pending, algorithm)
    if digest.checksum() != resumed.checksum:
        pending.discard()
        raise StorageError(f"{path}: its temporary file has changed since the checkpoint")
    return pending, digest


def _digest_of(pending: PendingFile, algorithm: str) -> Digest:
    pending.file.seek(0)
    return digest_of(pending.file, algorithm)


def write_hashed_chunks(
    directory: Path, name: str, chunks: Iterable[bytes | memoryview], algorithm: str
) -> FileEntry:
    """Write a file of the dataset from chunks, and return its entry."""
    digest = Digest(algorithm)
    pending = PendingFile(directory / name)
    try:
        for chunk in chunks:
            digest.update(chunk)
            pending.write(chunk)
        pending.commit()
    except BaseException:
        pending.discard()
        raise
    return digest.entry(name)
