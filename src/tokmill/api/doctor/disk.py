"""What the file system of a directory can do: a small file is made, synced, linked, removed."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

from tokmill.api.doctor.findings import Disk
from tokmill.storage import free_bytes, share_blocks

_PREFIX = ".tokmill-doctor-"
_BYTES = 4096


def examine_disk(use: str, path: Path) -> Disk:
    """Return what the file system of a directory can do; leaves nothing behind."""
    path = path.absolute()
    free, system = 0, _file_system(path)
    try:
        free = free_bytes(path)
        descriptor, name = tempfile.mkstemp(prefix=_PREFIX, dir=path)
    except OSError as error:
        reason = str(error.strerror or error).lower()
        return Disk(use, str(path), system, free, reason, False, False, 0.0)
    first, second = Path(name), Path(f"{name}-2")
    try:
        with os.fdopen(descriptor, "r+b") as file:
            start = time.perf_counter()
            file.write(bytes(_BYTES))
            file.flush()
            os.fsync(descriptor)
            sync_s = time.perf_counter() - start
            hard_links = _is_linked(first, second)
            second.unlink(missing_ok=True)
            with second.open("xb") as copy:
                reflinks = share_blocks(file, copy)
    except OSError as error:
        return Disk(use, str(path), system, free, str(error.strerror).lower(), False, False, 0.0)
    finally:
        for one in (first, second):
            with suppress(OSError):
                one.unlink(missing_ok=True)
    return Disk(use, str(path), system, free, "", hard_links, reflinks, sync_s)


def _is_linked(first: Path, second: Path) -> bool:
    try:
        second.hardlink_to(first)
    except OSError:
        return False
    return True


def _file_system(path: Path) -> str:
    """Return the type of the file system of a path, such as `ext4`; '' if it is not known."""
    try:
        mounts = psutil.disk_partitions(all=True)
    except OSError:
        return ""
    real = path.resolve()
    holding = [one for one in mounts if real.is_relative_to(one.mountpoint)]
    return max(holding, key=lambda one: len(one.mountpoint)).fstype if holding else ""
