"""Place the files of an export: as hard links, reflinks, copies, or written anew."""

from __future__ import annotations

import errno
import fcntl
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from tokmill.dataset.checksum import digest_of
from tokmill.errors import StorageError
from tokmill.settings.schema import BLAKE3
from tokmill.storage import make_directory, storage_errors
from tokmill.trainers.trainer import Linked, Written

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_FICLONE = 0x40049409
"""ioctl of Linux that lets a new file share the blocks of another (Btrfs, XFS)."""

_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES)
_COPY_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Placed:
    """A file of an export. `how`: `link`, `reflink`, `copy` or `written`.

    `blake3`: of a written file; the manifest of the dataset has the checksums of the others.
    """

    name: str
    n_bytes: int
    how: str
    blake3: str = ""


def place(file: Linked | Written, folder: Path, *, copy: bool) -> Placed:
    """Place one file below `folder`, read-only and durable; raises `StorageError`."""
    path = folder / file.name
    make_directory(path.parent)
    if isinstance(file, Linked):
        with storage_errors(path):
            how = _duplicate(file.source, path, copy=copy)
            return Placed(file.name, path.stat().st_size, how)
    with storage_errors(path), path.open("x+b", buffering=1 << 20) as raw:
        file.write(raw)
        raw.flush()
        os.fchmod(raw.fileno(), 0o444)
        os.fsync(raw.fileno())
        raw.seek(0)
        digest = digest_of(raw, BLAKE3)
        return Placed(file.name, digest.n_bytes, "written", digest.checksum().value)


def _duplicate(source: Path, path: Path, *, copy: bool) -> str:
    """Link a file, or share its blocks, or copy it; return which. Raises `OSError`."""
    if not copy:
        try:
            path.hardlink_to(source)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
        else:
            return "link"
    with source.open("rb") as old, path.open("xb") as new:
        how = "copy" if copy or not _share_blocks(old, new) else "reflink"
        if how == "copy":
            _copy(old, new)
        os.fchmod(new.fileno(), 0o644 if copy else 0o444)  # a copy is the user's own
        os.fsync(new.fileno())
    return how


def _share_blocks(old: BinaryIO, new: BinaryIO) -> bool:
    try:
        fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
    except OSError:
        return False
    return True


def _copy(old: BinaryIO, new: BinaryIO) -> None:
    while chunk := old.read(_COPY_BYTES):
        new.write(chunk)
    new.flush()


def check_names(files: Sequence[Linked | Written]) -> None:
    """Check that no two files of an export have one name; raises `StorageError`."""
    names = [file.name for file in files]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise StorageError(f"{twice}: two files of the export have this name")
