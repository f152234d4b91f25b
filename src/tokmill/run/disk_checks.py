"""Check before a run that the output's file system does what commits need, and has room."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tokmill.dataset.layout import PLAN
from tokmill.engines.choice import EngineChoice
from tokmill.engines.engine import REFERENCE
from tokmill.errors import StorageError
from tokmill.storage import UNSUPPORTED, file_sizes, free_bytes, storage_errors, sync_directory
from tokmill.words.units import size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tokmill.engines.engine import Engine
    from tokmill.run.prepare import Prepared

AMPLE = 100
"""If this many times the input is free, nothing is sampled: no usual corpus grows so much."""

SAMPLE_BYTES = 256 << 10

LEAST_SHARE = 0.5
"""A run is refused if even this share of the least prediction has no room."""

_UNSUPPORTED = {*UNSUPPORTED, errno.EPERM, errno.EINVAL, errno.EXDEV, errno.EMLINK}


def check_file_system(directory: Path) -> None:
    """Try in an output directory all operations of a run; needs a few syncs, leaves nothing.

    The files have names of `storage.PendingFile`: the next run removes them after a kill.

    Raises:
        StorageError: names the missing operation, or the error of writing.
    """
    first, second = (
        directory / f".{PLAN}.{os.getpid()}-{secrets.token_hex(4)}.tmp" for _ in range(2)
    )
    try:
        with storage_errors(directory):
            descriptor = os.open(first, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, b"\n")
                with _needed(directory, "read-only files (chmod)"):
                    os.fchmod(descriptor, 0o444)
                with _needed(directory, "durable writes (fsync)"):
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            with _needed(directory, "hard links"):
                os.link(first, second)
            os.unlink(second)  # noqa: PTH108  this function speaks to the system one way
            second.write_bytes(b"")
            with _needed(directory, "renames over an existing file", errno.EEXIST, errno.EACCES):
                os.replace(first, second)  # noqa: PTH105
            with _needed(directory, "durable names (fsync of a directory)", errno.EBADF):
                sync_directory(directory)
    finally:
        for path in (first, second):
            with suppress(OSError):
                path.unlink()


@contextmanager
def _needed(directory: Path, operation: str, *also: int) -> Iterator[None]:
    """Turn an error that means "not supported" into a line that names the operation."""
    try:
        yield
    except OSError as error:
        if error.errno not in {*_UNSUPPORTED, *also}:
            raise
        reason = (error.strerror or str(error)).lower()
        raise StorageError(
            f"{directory}: its file system has no {operation} ({reason}), without which a dataset "
            "is not safe from a crash: choose an --output on another disk"
        ) from None


def check_space(
    prepared: Prepared,
    reference: Callable[[], Engine],
    directory: Path,
    warn: Callable[[str], None],
) -> None:
    """Compare the predicted bytes of a run with the free space, its earlier files included.

    Nothing is predicted for standard input.

    Raises:
        StorageError: the output cannot fit; where it may not fit, `warn` gets a line.
    """
    room = sum(file_sizes(directory).values()) + free_bytes(directory)
    n_bytes = sum(file.n_bytes for file in prepared.files)
    if not n_bytes or room >= AMPLE * n_bytes:
        return
    from tokmill.run.forecast import predict, sample_and_encode

    spec = prepared.spec(EngineChoice(REFERENCE, "", "for a prediction"), 1)
    sampled = sample_and_encode(prepared, spec, reference, SAMPLE_BYTES)
    if not sampled.documents.any():
        return
    disk = predict(spec, prepared.parts, sampled).disk
    needed, least = disk.n_bytes, round(disk.low_bytes * LEAST_SHARE)
    if least > room:
        raise StorageError(
            f"{directory}: no room for this dataset: about {size(needed)} are needed, "
            f"at least {size(least)}, and there is room for {size(room)}: make room, or choose "
            "another --output"
        )
    if needed > room:
        warn(
            f"{directory}: this dataset may not fit: about {size(needed)} are "
            f"needed, there is room for {size(room)}"
        )
