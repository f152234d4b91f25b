"""The numbers of a file as a sequence, each read by position: what is returned is in memory.

A memory map would do the same in fewer lines. But a file that is cut while it is mapped ends the
process by a signal (SIGBUS), hours into a job or in a notebook; a read that finds too few bytes is
an error in one line. Nor does memory grow with what was read.

A training loop looks up a few numbers of an index here and there for every row, and for these a map
is several times as fast. So indexes are mapped there, and the length of the file is compared
immediately before: only a file that is cut within the same microseconds ends the process.
"""

from __future__ import annotations

import operator
import os
from mmap import ACCESS_READ, mmap
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np

from tokmill.errors import VerifyError
from tokmill.opening import open_regular
from tokmill.storage import read_errors
from tokmill.urls import store_url
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

_BLOCK = 1 << 20
"""Numbers that are read at once for places here and there."""

_COPIED_BYTES = 32 << 20
"""Bytes of an object that are in memory while it is copied to a temporary file."""

_LARGE = 4 << 20
"""From so many bytes on NumPy asks the system for large pages: a read takes half as long."""


class OpenFile:
    """A regular file open for reading; it is closed when nothing refers to it any more."""

    __slots__ = ("fd", "path")

    def __init__(self, path: Path | str) -> None:
        self.path = str(path)
        with open_regular(Path(path), follow_links=True) as file:
            self.fd = os.dup(file.fileno())

    @classmethod
    def of(cls, path: str, file: IO[bytes]) -> Self:
        """Return a file that is open already; `path`: for messages."""
        found = cls.__new__(cls)
        found.path, found.fd = path, os.dup(file.fileno())
        return found

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if hasattr(self, "fd"):
            close(self.fd)

    @property
    def n_bytes(self) -> int:
        """Return its size now."""
        return os.fstat(self.fd).st_size

    def read(self, start: int, n_bytes: int) -> bytes:
        """Return bytes at a position.

        Raises:
            VerifyError: the file ends before.
            StorageError: it cannot be read.
        """
        try:
            data = os.pread(self.fd, n_bytes, start)
            while len(data) < n_bytes:  # a call returns at most 2 GiB
                more = os.pread(self.fd, n_bytes - len(data), start + len(data))
                if not more:
                    raise self.was_cut(start, len(data), n_bytes)
                data += more
        except OSError as error:
            with read_errors(Path(self.path)):
                raise error
        return data

    def read_into(self, into: memoryview, start: int) -> None:
        """Fill bytes from a position; raises as `read`."""
        done = 0
        try:
            while done < len(into):
                n_read = os.preadv(self.fd, (into[done:],), start + done)
                if n_read <= 0:
                    raise self.was_cut(start, done, len(into))
                done += n_read
        except OSError as error:
            with read_errors(Path(self.path)):
                raise error

    def was_cut(self, start: int, n_read: int, n_bytes: int) -> VerifyError:
        """Return the error of a file that has fewer bytes than when it was opened."""
        return VerifyError(
            f"{self.path}: it was cut while it was read: {n_read:,} of {plural(n_bytes, 'byte')} "
            f"at {start:,}; see tokmill verify"
        )


class DataFile(Protocol):
    """A file that is read by position: an `OpenFile`, or a `StoredFile` of a store.

    Attributes:
        path: for messages.
        fd: its descriptor; -1 without one.
    """

    path: str
    fd: int

    @property
    def n_bytes(self) -> int:
        """Return its size now."""

    def read(self, start: int, n_bytes: int) -> bytes:
        """Return bytes at a position; see `OpenFile.read`."""

    def read_into(self, into: memoryview, start: int) -> None:
        """Fill bytes from a position; raises as `read`."""


class Opener(NamedTuple):
    """What opens the files of a dataset in a store by their names, through a cache.

    `identity`: of the dataset.
    """

    identity: str
    open: Callable[[str], OpenFile]


OPENERS: dict[Path, Opener] = {}
"""By the directory of the dataset; see `cached_dataset`."""


def open_file(path: Path | str) -> DataFile:
    """Open a file of a dataset, on a disk or in a store; raises `OSError`."""
    path = Path(path)
    if not store_url(path):
        return OpenFile(path)
    if path.parent in OPENERS:
        return OPENERS[path.parent].open(path.name)
    from tokmill.dataset.stored_file import StoredFile  # few datasets are in a store

    return StoredFile(path)


def local_file(path: Path | str) -> OpenFile:
    """Open a file of a dataset on a disk; one in a store is copied to a temporary file first.

    The copy has no name, so that it goes with the last process that has it open.

    Raises:
        OSError: it cannot be opened or copied.
        StorageError: the store cannot be read.
    """
    path = Path(path)
    stored = open_file(path)
    if isinstance(stored, OpenFile):
        return stored
    with TemporaryFile(prefix="tokmill-") as copy:
        for start in range(0, stored.n_bytes, _COPIED_BYTES):
            copy.write(stored.read(start, min(_COPIED_BYTES, stored.n_bytes - start)))
        copy.flush()
        return OpenFile.of(stored.path, copy)


class MappedFile:
    """A file that is mapped; its arrays are to be read at once after `check`."""

    def __init__(self, path: Path | str) -> None:
        """Map a file; raises as `local_file`, and `ValueError` if it is empty."""
        self._file = local_file(path)
        self._n_bytes = self._file.n_bytes
        self._map = mmap(self._file.fd, self._n_bytes, access=ACCESS_READ)

    def array(self, dtype: npt.DTypeLike, start: int = 0, n: int = -1) -> npt.NDArray[Any]:
        """Return `n` numbers from byte `start` on; -1: all, and `ValueError` if they do not fit."""
        return np.frombuffer(self._map, dtype, n, start)

    def check(self) -> None:
        """Check that the file is as long as it was; raises `VerifyError`."""
        if self._file.n_bytes < self._n_bytes:
            raise self._file.was_cut(0, self._file.n_bytes, self._n_bytes)


class FileArray:
    """The numbers of a file: `len`, `[i]`, `[start:stop]`, `[places]`, and NumPy's functions.

    Arrays that are returned are read-only. Safe to use from several threads.

    Attributes:
        dtype: of a number, little-endian.
        itemsize: bytes of a number.
    """

    __slots__ = ("_file", "_n", "_start", "dtype", "itemsize")

    def __init__(self, file: DataFile, dtype: npt.DTypeLike, start: int = 0, n: int = -1) -> None:
        """Take `n` numbers from byte `start` on; -1: all of the file, whose rest is ignored."""
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.itemsize = self.dtype.itemsize
        self._file, self._start = file, start
        self._n = (file.n_bytes - start) // self.itemsize if n < 0 else n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, where: Any) -> Any:
        """Return a number, or an array; raises `IndexError`, and as `OpenFile.read`.

        `where`: a whole number, a slice without a step, or an array of places in rising order.
        """
        if isinstance(where, slice):
            start, stop, _ = where.indices(self._n)
            return self._numbers(start, max(start, stop))
        if isinstance(where, np.ndarray):
            return self._at(where)
        place = operator.index(where)
        if not -self._n <= place < self._n:
            raise IndexError(place)
        return self._numbers(place % self._n, place % self._n + 1)[0]

    def number(self, place: int) -> int:
        """Return a whole number that is stored with a sign; `[place]` takes 2 µs longer."""
        if not 0 <= place < self._n:
            raise IndexError(place)
        size = self.itemsize
        data = self._file.read(self._start + place * size, size)
        return int.from_bytes(data, "little", signed=True)

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        return self._numbers(0, self._n).astype(dtype or self.dtype, copy=False)

    def _numbers(self, start: int, stop: int) -> npt.NDArray[Any]:
        size = self.itemsize
        place, n_bytes = self._start + start * size, (stop - start) * size
        if n_bytes < _LARGE:
            return np.frombuffer(self._file.read(place, n_bytes), self.dtype)
        numbers = np.empty(stop - start, self.dtype)
        self._file.read_into(numbers.view(np.uint8).data, place)
        numbers.flags.writeable = False
        return numbers

    def _at(self, places: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the numbers at places in rising order; reads what lies between, block by block."""
        found = np.empty(len(places), self.dtype)
        if len(places) and not 0 <= places[0] <= places[-1] < self._n:
            raise IndexError(f"{self._file.path}: {plural(self._n, 'number')}")
        done = 0
        while done < len(places):
            start = int(places[done])
            stop = min(start + _BLOCK, self._n)
            until = max(done + 1, int(np.searchsorted(places, stop)))
            found[done:until] = self._numbers(start, stop)[places[done:until] - start]
            done = until
        return found
