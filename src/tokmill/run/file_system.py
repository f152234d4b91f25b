"""Whether the file system of an output can do what commits need, tried before a run begins."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tokmill.dataset.layout import PLAN
from tokmill.errors import StorageError
from tokmill.storage import UNSUPPORTED, storage_errors, sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_UNSUPPORTED = {*UNSUPPORTED, errno.EPERM, errno.EINVAL, errno.EXDEV, errno.EMLINK}


def check_file_system(directory: Path) -> None:
    """Try in an output directory all that a commit does; takes a few syncs, and leaves nothing.

    The files have names of `storage.PendingFile`: what a kill leaves, the next run removes.

    Raises:
        StorageError: names what the file system cannot do, or says why it cannot be written to.
    """
    first, second = (
        directory / f".{PLAN}.{os.getpid()}-{secrets.token_hex(4)}.tmp" for _ in range(2)
    )
    try:
        with storage_errors(directory):
            descriptor = os.open(first, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, b"\n")
                with _named(directory, "read-only files (chmod)"):
                    os.fchmod(descriptor, 0o444)
                with _named(directory, "durable writes (fsync)"):
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            with _named(directory, "hard links"):
                os.link(first, second)
            os.unlink(second)  # noqa: PTH108  one way to speak to the system in this function
            second.write_bytes(b"")
            with _named(directory, "renames over an existing file", errno.EEXIST, errno.EACCES):
                os.replace(first, second)  # noqa: PTH105
            with _named(directory, "durable names (fsync of a directory)", errno.EBADF):
                sync_directory(directory)
    finally:
        for path in (first, second):
            with suppress(OSError):
                path.unlink()


@contextmanager
def _named(directory: Path, what: str, *also: int) -> Iterator[None]:
    """Turn an error that means "cannot" into a line that says what cannot be done."""
    try:
        yield
    except OSError as error:
        if error.errno not in {*_UNSUPPORTED, *also}:
            raise
        reason = (error.strerror or str(error)).lower()
        raise StorageError(
            f"{directory}: its file system has no {what} ({reason}), without which a dataset is "
            "not safe from a crash: choose an --output on another disk"
        ) from None
