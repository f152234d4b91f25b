"""Write one shard: `.bin`, its sidecars and `.idx`, with their checksums, atomically.

The rejects of a part have a file, too: one JSON object a line for each record that could not become
tokens.
"""

from __future__ import annotations

import base64
import json
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.checksum import Digest, FileEntry, digest_of
from tokmill.dataset.layout import ORIGIN, REJECTS, SIDECARS, Split
from tokmill.dataset.manifest import ShardRow
from tokmill.dataset.origins import OriginEncoder
from tokmill.dataset.sidecars import MAX_LENGTH, METADATA, IndexWriter, MetadataEncoder
from tokmill.dataset.typed_json import Positive
from tokmill.errors import RecordError
from tokmill.opening import open_regular
from tokmill.settings.schema import BLAKE3
from tokmill.storage import PendingFile
from tokmill.timing import StageTimer, add_seconds
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    import numpy.typing as npt

    from tokmill.timing import StageSeconds
    from tokmill.values import RecordPlace, Reject


OF_DOCUMENTS = (ORIGIN, METADATA)
"""Endings of the sidecars with a value for every document, not for every token."""

MOST_PENDING = 3
"""Most writes that wait for the writing thread."""

_LEAST_TOKENS = 32 << 10
"""Fewer tokens wait for more: handing work to a thread costs 50 us."""


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """A committed shard, in the record of its part; its `.bin` is the first of its files."""

    split: Split
    documents: Positive
    tokens: Positive
    files: tuple[FileEntry, ...]

    def as_row(self, first_slice: int = 0) -> ShardRow:
        """Return the shard's row in the manifest; `first_slice`: the number of its part's first."""
        name = self.files[0].name.removesuffix(".bin")
        has_origins = any(entry.name.endswith(f".{ORIGIN}") for entry in self.files)
        number = first_slice if has_origins else None
        return ShardRow(name, self.split, self.documents, self.tokens, number)


class HashedFile(PendingFile):
    """A file of a dataset that appears when it is committed, and the checksum of its bytes.

    `name`: relative to the directory of the dataset.
    """

    def __init__(self, directory: Path, name: str, algorithm: str) -> None:
        super().__init__(directory, name)
        self._name, self.digest = name, Digest(algorithm)

    def add(self, data: bytes | memoryview) -> None:
        """Append bytes; raises `StorageError`."""
        self.digest.update(data)
        self.write(data)

    def commit_entry(self) -> FileEntry:
        """Make the file appear under its name."""
        self.commit()
        return self.digest.entry(self._name)


def write_hashed_chunks(
    directory: Path, name: str, chunks: Iterable[bytes | memoryview], algorithm: str
) -> FileEntry:
    """Write a file of the dataset from chunks, and return its entry."""
    with HashedFile(directory, name, algorithm) as file:
        for chunk in chunks:
            file.add(chunk)
        return file.commit_entry()


class ShardWriter:
    """An open shard of one split; `stem` is its name without ending.

    `sidecars`: endings of the files beside the tokens, of `SIDECARS` and `OF_DOCUMENTS`.
    `algorithm`: of the checksums. `stage_s`: seconds so far, by stage.

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
    ) -> None:
        self.split = split
        self._algorithm = algorithm
        self.n_documents = self.n_tokens = 0
        self._sidecars = tuple(sidecars)
        self._pending: deque[Future[dict[str, StageSeconds]]] = deque()
        self._waiting: list[tuple[npt.NDArray[Any], ...]] = []
        self._n_waiting = 0
        kinds = {**SIDECARS, "bin": dtype, ORIGIN: np.dtype(np.int64), METADATA: np.dtype(object)}
        self._bodies: list[HashedFile] = []
        self._dtypes: list[np.dtype[Any]] = []
        self._origins, self._metadata = OriginEncoder(), MetadataEncoder()
        with ExitStack() as files:
            for ending in ("bin", *sidecars):
                self._bodies.append(HashedFile(directory, f"{stem}.{ending}", algorithm))
                files.callback(self._bodies[-1].discard)
                self._dtypes.append(kinds[ending])
            self._idx = PendingFile(directory, f"{stem}.idx")
            files.callback(self._idx.discard)
            self._files = files.pop_all()
        self._index = IndexWriter(self._idx.file, self._idx.write, dtype.itemsize)
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
                (n_documents, 2); of `meta`, n_documents rows of a
                `pyarrow.RecordBatch` or `Table`, as `read_metadata` returns it.

        Raises:
            TypeError: an array has another dtype; a cast would be unchecked.
            ValueError: a sidecar is missing, unknown or of another length.
            RecordError: a document is longer than an index can say.
            StorageError: the bytes cannot be written.
        """
        sidecars = sidecars or {}
        if tuple(sidecars) != self._sidecars or any(
            len(b) != len(lengths if ending in OF_DOCUMENTS else tokens)
            for ending, b in sidecars.items()
        ):
            lengths_found = {ending: len(body) for ending, body in sidecars.items()}
            raise ValueError(
                f"{plural(len(tokens), 'token')} with {lengths_found}, expected {self._sidecars}"
            )
        if (longest := int(lengths.max(initial=0))) > MAX_LENGTH:
            raise RecordError(
                f"{self._idx.path}: expected documents of at most {MAX_LENGTH:,} tokens, found "
                f"one of {longest:,}: set --max-tokens to leave it out"
            )
        values = (  # of objects is metadata, which is no array
            array if dtype.hasobject else array.astype(dtype, casting="equiv", copy=False)
            for array, dtype in zip((tokens, *sidecars.values()), self._dtypes, strict=True)
        )
        self._waiting.append((lengths, *values))
        self._n_waiting += len(tokens)
        self.n_documents += len(lengths)
        self.n_tokens += len(tokens)
        if self._n_waiting >= _LEAST_TOKENS:
            self._hand_over()

    def _hand_over(self) -> None:
        """Let the thread write what waits, as one piece."""
        if not self._waiting:
            return
        lengths, *values = map(_joined, zip(*self._waiting, strict=True))
        self._waiting, self._n_waiting = [], 0
        self._wait(MOST_PENDING - 1)
        self._pending.append(self._thread.submit(self._take, values, lengths))

    def _take(
        self, values: Sequence[Any], lengths: npt.NDArray[np.int64]
    ) -> dict[str, StageSeconds]:
        """Hash and write documents, on the thread; return the seconds of each stage."""
        timer = StageTimer()
        data = [
            self._origins.encode(array)
            if ending == ORIGIN
            else self._metadata.encode(array)
            if ending == METADATA
            else np.ascontiguousarray(array).view(np.uint8).data
            for ending, array in zip(("bin", *self._sidecars), values, strict=True)
        ]
        for body, chunk in zip(self._bodies, data, strict=True):
            body.digest.update(chunk)
        timer.end("hash")
        for body, chunk in zip(self._bodies, data, strict=True):
            body.write(chunk)
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
        if METADATA in self._sidecars:
            metadata = self._bodies[1 + self._sidecars.index(METADATA)]
            metadata.add(self._metadata.finish())
        self._index.finish()
        self._idx.file.seek(0)
        idx = digest_of(self._idx.file, self._algorithm).entry(self._idx.path.name)
        self._idx.commit()
        *sidecars, tokens = (body.commit_entry() for body in reversed(self._bodies))
        timer.end("write")
        add_seconds(self.stage_s, timer.seconds)
        return ShardEntry(
            self.split, self.n_documents, self.n_tokens, (tokens, idx, *reversed(sidecars))
        )

    def discard(self) -> None:
        """Close the files, and remove them."""
        self._thread.shutdown(cancel_futures=True)
        self._files.close()


def _joined(parts: Sequence[Any]) -> Any:
    """Return arrays end to end; batches of metadata stay apart."""
    if len(parts) == 1 and isinstance(parts[0], np.ndarray):
        return parts[0]
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else parts


class RejectsFile(HashedFile):
    """The file of rejects of one part."""

    def __init__(self, directory: Path, name: str, algorithm: str) -> None:
        super().__init__(directory, f"{REJECTS}/{name}", algorithm)
        self._algorithm, self._whole_bytes = algorithm, 0

    def append(self, source: str, place: RecordPlace, reject: Reject) -> None:
        """Add one reject; raw bytes that are not UTF-8 are written as base64."""
        entry = _entry(source, place, reject)
        try:
            entry["raw"] = reject.raw.decode()
        except UnicodeDecodeError:
            entry["raw_base64"] = base64.b64encode(reject.raw).decode()
        line = json.dumps(entry, ensure_ascii=True).encode() + b"\n"
        self.add(line)
        self._whole_bytes += len(line)

    def commit_stopped(self, name: str) -> FileEntry:
        """Make the file appear under another name: its part is stopped, and has no record.

        An earlier file of that name is replaced. A line that had no room on the disk is left out.
        """
        self.file.truncate(self._whole_bytes)
        self.file.seek(0)
        entry = digest_of(self.file, self._algorithm).entry(f"{REJECTS}/{name}")
        self.commit(replace=True, name=name)
        return entry


def _entry(source: str, place: RecordPlace, reject: Reject) -> dict[str, Any]:
    return {
        "source": source,
        "byte_offset": place.byte_offset,
        "line": place.line,
        "reason": reject.reason,
        "message": reject.message,
    }


def read_rejects(paths: Iterable[Path]) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of files of rejects; a file that is gone or damaged is passed over."""
    for path in paths:
        with suppress(OSError, ValueError, RecursionError), open_regular(path) as file:
            yield from map(json.loads, file)


def describe_reject(source: str, place: RecordPlace, reject: Reject) -> str:
    """Return a line with the place and the reason of a reject."""
    return describe_entry(_entry(source, place, reject))


def describe_entry(entry: Mapping[str, Any]) -> str:
    """Return the line of `describe_reject` for an entry of a file."""
    where = f"{entry['source']}:{entry['line']}"
    if entry["byte_offset"] >= 0:
        where += f" (byte {entry['byte_offset']})"
    return f"{where}: {entry['reason']}: {entry['message']}"
