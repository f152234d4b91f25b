"""A bounded cache on a local disk of files that stand in object stores, shared by processes.

A file has the name of its sum: what is found is what was wanted, two datasets share the files that
they have in common, and one that was replaced is another file.

    ALGORITHM-SUM           a file whose bytes have this sum; read-only
    .ALGORITHM-SUM.part     one that is being fetched, locked by who fetches it
    .order-PROCESS-NUMBER   what a process reads next, in order; locked as long as it lives
    .lock                   held while room is made

A `.part` has the size of the file from the beginning, so that it counts as room that is taken; it
is renamed when all bytes are there and have the sum. The system frees the locks of a process that
is killed: the next one begins such a file again, and forgets such an order.

Room is made by the orders of all processes: what none of them needs goes first, what was fetched
first before all; then what is needed latest. A file that is fetched ahead takes no room from one
that is needed before it. A reader has its file open, so it may be removed at any time: its space is
free when the reader goes on to another file.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import secrets
import time
from stat import S_ISREG
from typing import TYPE_CHECKING, NamedTuple

from tokmill.dataset.checksum import Digest
from tokmill.dataset.file_array import OpenFile
from tokmill.errors import StorageError
from tokmill.storage import make_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tokmill.dataset.checksum import FileEntry

    Download = Callable[[], Iterator[bytes]]

_LOG = logging.getLogger("tokmill")

NOW = -1
"""The rank of a file that a reader waits for; others have their place in the order, from 0."""

MOST_OPEN = 128
"""Files that a process keeps open."""

_LOOK_S = 1.0
"""Between two looks for open files that other processes have removed."""

_PAUSE_S = 0.02

SILENT_S = 30.0
"""A file that another process fetches for longer is waited for with a word."""

_FINISHED = re.compile(r"(?:blake3|sha256)-[0-9a-f]{64}")
_PART = re.compile(rf"\.(?P<name>{_FINISHED.pattern})\.part")
_ORDER = re.compile(r"\.order-[0-9]+-[0-9a-f]{8}")


class WrongSumError(Exception):
    """The bytes of a file do not have its sum."""


class _Listed(NamedTuple):
    """What stands in a cache: finished files by name, and the bytes of all."""

    finished: dict[str, os.stat_result]
    n_bytes: int


class ObjectCache:
    """Files by their sums, at most `n_bytes` of them. Safe to use from threads and after a fork.

    Raises:
        StorageError: the directory cannot be made or written to.
    """

    def __init__(self, directory: Path, n_bytes: int) -> None:
        self.directory, self.n_bytes = directory, n_bytes
        self._open: dict[str, OpenFile] = {}
        self._next_look_s = 0.0
        self._order: tuple[str, ...] = ()
        self._order_file: tuple[int, int] | None = None  # process, descriptor
        if not directory.is_dir():
            make_directory(directory.parent)
            with _cache_errors(directory):
                directory.mkdir(mode=0o700, exist_ok=True)
        with self._locked():
            pass  # it can be written to

    def has(self, entry: FileEntry) -> bool:
        """Return whether a file is there; one that was cut is removed."""
        path = self.directory / name_of(entry)
        try:
            status = path.lstat()
        except FileNotFoundError:
            return False
        if S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
            if status.st_size == entry.n_bytes:
                return True
            with _cache_errors(path), contextlib.suppress(FileNotFoundError):
                path.unlink()
            return False
        raise StorageError(f"{path}: expected a file of this user in the cache: remove it")

    def opened(self, name: str) -> OpenFile | None:
        """Return a file that is open already, by `name_of` its entry; None if it is not."""
        if time.monotonic() >= self._next_look_s:
            self._forget_removed()
        return self._open.get(name)

    def open(self, entry: FileEntry, download: Download) -> OpenFile:
        """Return a file, open; one that is not there is fetched first.

        Raises:
            WrongSumError: what was downloaded is another file.
            StorageError: the cache cannot be written to.
        """
        name = name_of(entry)
        file = self.opened(name)
        while file is None:
            if self.has(entry):
                with _cache_errors(self.directory / name), contextlib.suppress(FileNotFoundError):
                    file = OpenFile(self.directory / name)
                continue
            if not self.fetch(entry, download):
                time.sleep(_PAUSE_S)  # what other processes fetch takes all room
        if len(self._open) >= MOST_OPEN:
            self._open.pop(next(iter(self._open), ""), None)
        self._open[name] = file
        return file

    def fetch(self, entry: FileEntry, download: Download, rank: int = NOW) -> bool:
        """Make a file stand in the cache; return whether it does now.

        Args:
            entry: its size and sum.
            download: yields its bytes.
            rank: its place in the order of this process. `NOW` waits for another process that
                fetches it.

        Raises:
            WrongSumError: what was downloaded is another file.
            StorageError: the cache cannot be written to, or its disk is full.
        """
        part = self.directory / f".{name_of(entry)}.part"
        told_s = time.monotonic() + SILENT_S
        while not self.has(entry):
            with _cache_errors(part):
                descriptor = _locked_part(part)
            if descriptor is None:
                if rank != NOW:
                    return False
                if time.monotonic() >= told_s:
                    _LOG.warning("%s: waiting for the process that fetches it", part)
                    told_s = float("inf")
                time.sleep(_PAUSE_S)
                continue
            try:
                if self.has(entry) or not self._take_room(descriptor, entry, rank):
                    part.unlink(missing_ok=True)
                    return self.has(entry)
                _fill(part, descriptor, entry, download)
                # Under the lock: who lists the cache meanwhile would count neither name.
                with self._locked(), _cache_errors(part):
                    part.rename(self.directory / name_of(entry))
            except BaseException:
                with contextlib.suppress(OSError):
                    part.unlink()
                raise
            finally:
                os.close(descriptor)
        return True

    def set_order(self, entries: Iterable[FileEntry]) -> None:
        """Make known what this process reads next, in order; all processes evict by it."""
        order = tuple(name_of(entry) for entry in entries)
        if order == self._order and self._order_file is not None:
            return
        self._order = order
        with self._locked(), _cache_errors(self.directory):
            descriptor = self._own_order()
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, "\n".join(order).encode(), 0)

    def _own_order(self) -> int:
        """Return the descriptor of this process's order, which is locked."""
        process = os.getpid()
        if self._order_file is None or self._order_file[0] != process:
            path = self.directory / f".order-{process}-{secrets.token_hex(4)}"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._order_file = process, descriptor
        return self._order_file[1]

    def _take_room(self, part: int, entry: FileEntry, rank: int) -> bool:
        """Reserve the size of its file for a `.part`, if there is room or room can be made."""
        with self._locked(), _cache_errors(self.directory):
            os.ftruncate(part, 0)
            listed = self._listed()
            missing = listed.n_bytes + entry.n_bytes - self.n_bytes
            evicted = _evicted(listed.finished, self._ranks(), missing, rank)
            if evicted is None:
                return False
            for name in evicted:
                (self.directory / name).unlink(missing_ok=True)
                self._open.pop(name, None)
            os.ftruncate(part, entry.n_bytes)
        return True

    def _listed(self) -> _Listed:
        """Return what stands in the cache; what dead processes were fetching is removed."""
        finished: dict[str, os.stat_result] = {}
        n_bytes = 0
        for path in self.directory.iterdir():
            is_part = _PART.fullmatch(path.name) is not None
            if not is_part and not _FINISHED.fullmatch(path.name):
                continue
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            if is_part and status.st_size and _is_free(path):
                path.unlink(missing_ok=True)
                continue
            n_bytes += status.st_size
            if not is_part:
                finished[path.name] = status
        return _Listed(finished, n_bytes)

    def _ranks(self) -> dict[str, int]:
        """Return the soonest place of each file in the orders of all processes that live."""
        orders: list[Sequence[str]] = [self._order]
        own = None if self._order_file is None else os.fstat(self._order_file[1]).st_ino
        for path in self.directory.iterdir():
            if not _ORDER.fullmatch(path.name) or path.lstat().st_ino == own:
                continue
            if _is_free(path):
                path.unlink(missing_ok=True)
            else:
                orders.append(path.read_text().splitlines())
        ranks: dict[str, int] = {}
        for order in orders:
            for rank, name in enumerate(order):
                ranks[name] = min(rank, ranks.get(name, rank))
        return ranks

    def _forget_removed(self) -> None:
        """Close files that other processes have removed: their space is free then."""
        self._next_look_s = time.monotonic() + _LOOK_S
        for name, file in list(self._open.items()):
            if not os.fstat(file.fd).st_nlink:
                self._open.pop(name, None)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the cache, for milliseconds."""
        path = self.directory / ".lock"
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with _cache_errors(self.directory):
            descriptor = os.open(path, flags, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a forked process may have it, too
            os.close(descriptor)


def name_of(entry: FileEntry) -> str:
    """Return the name of a file in a cache: its sum."""
    return f"{entry.algorithm}-{entry.checksum}"


def _evicted(
    finished: Mapping[str, os.stat_result], ranks: Mapping[str, int], missing: int, rank: int
) -> list[str] | None:
    """Return the files to remove, so that `missing` bytes are free; None if they are needed."""
    found: list[str] = []
    unneeded = sorted(finished.keys() - ranks.keys(), key=lambda name: finished[name].st_mtime_ns)
    needed = sorted(finished.keys() & ranks.keys(), key=lambda name: -ranks[name])
    for name in (*unneeded, *needed):
        if missing <= 0:
            break
        if name in ranks and ranks[name] <= rank:
            return None
        found.append(name)
        missing -= finished[name].st_size
    return found if missing <= 0 else None


def _locked_part(path: Path) -> int | None:
    """Return the descriptor of a `.part` that this process has locked; None: another one has."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    while True:
        descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.lstat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass  # who had it locked has renamed or removed it
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_free(path: Path) -> bool:
    """Return whether nobody has a file locked; False if it is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _fill(path: Path, descriptor: int, entry: FileEntry, download: Download) -> None:
    """Write the bytes of a file, and compare their sum; it is there after a crash, too."""
    digest = Digest(entry.algorithm)
    for piece in download():
        view, start = memoryview(piece), digest.n_bytes
        digest.update(piece)
        with _cache_errors(path):
            while len(view):
                n_written = os.pwrite(descriptor, view, start)
                view, start = view[n_written:], start + n_written
    if digest.n_bytes != entry.n_bytes or digest.checksum() != entry.checksum:
        raise WrongSumError
    with _cache_errors(path):
        os.fchmod(descriptor, 0o444)
        os.fsync(descriptor)


@contextlib.contextmanager
def _cache_errors(path: Path) -> Iterator[None]:
    """Turn an `OSError` in the cache into one line.

    Raises:
        StorageError: in place of any `OSError`.
    """
    try:
        yield
    except OSError as error:
        said = (error.strerror or str(error)).lower()
        raise StorageError(
            f"{path}: {said}: the cache needs a directory that this user can write to, on a disk "
            "with room for cache_bytes"
        ) from None
