"""Files that the tasks of a mix write for each other, in the folder `.mix` of the output.

A file appears whole, but is not synced: after a crash of the machine all are made again. No link is
followed: the folder may come from a stranger.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedWriter
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from tokmill.dataset.layout import MIX
from tokmill.storage import (
    PendingFile,
    folder_of,
    open_inside,
    remove_file,
    status_inside,
    storage_errors,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

_ZEROS = 1 << 20


@dataclass(frozen=True)
class Temporary:
    """The folder `.mix` in the directory `output`; every method raises `StorageError`."""

    output: Path

    def has(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        with storage_errors(self.output / MIX / name):
            return status_inside(self.output, f"{MIX}/{name}") is not None

    def read(self, name: str) -> bytes:
        """Return the bytes of a file."""
        with storage_errors(self.output / MIX / name), self._open(name) as file:
            return file.read()

    def map(self, name: str, dtype: npt.DTypeLike = np.uint8) -> npt.NDArray[Any]:
        """Return the values of a file: (n,), read-only."""
        with storage_errors(self.output / MIX / name), self._open(name) as file:
            if not os.fstat(file.fileno()).st_size:
                return np.empty(0, dtype)
            return np.memmap(file, dtype=dtype, mode="r")

    def _open(self, name: str) -> BinaryIO:
        return open_inside(self.output, f"{MIX}/{name}")

    @contextmanager
    def new(self, name: str, *, is_durable: bool = False) -> Iterator[BinaryIO]:
        """Yield a new file, which appears under its name at the end, if no error is raised.

        `is_durable`: it is there after a crash of the machine, too.
        """
        with PendingFile(self.output, f"{MIX}/{name}") as pending:
            with storage_errors(pending.path):
                file = BufferedWriter(os.fdopen(os.dup(pending.file.fileno()), "wb", 0))
                with file:
                    yield file
            pending.commit(replace=True, is_durable=is_durable)

    def make_zeros(self, name: str, n_bytes: int) -> None:
        """Make a file of zeros that `map_writable` can change, unless it is there."""
        path = f"{MIX}/{name}"
        with storage_errors(self.output / path):
            status = status_inside(self.output, path)
            if status is not None and status.st_size == n_bytes:
                return
            remove_file(self.output, path)
            with folder_of(self.output, path) as (folder, last):
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                descriptor = os.open(last, flags, 0o666, dir_fd=folder)
            with os.fdopen(descriptor, "wb") as file:
                for start in range(0, n_bytes, _ZEROS):  # a hole would need space later
                    file.write(bytes(min(_ZEROS, n_bytes - start)))

    def map_writable(self, name: str) -> npt.NDArray[np.uint8]:
        """Return the bytes of a file of `make_zeros`: (n,) uint8, which can be written."""
        path = f"{MIX}/{name}"
        with storage_errors(self.output / path):
            with self._open(name):
                pass  # no pipe, no device
            with folder_of(self.output, path) as (folder, last):
                flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                descriptor = os.open(last, flags, dir_fd=folder)
            with os.fdopen(descriptor, "r+b") as file:
                return np.memmap(file, np.uint8, "r+")
