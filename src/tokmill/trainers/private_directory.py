"""A directory that is made under a private name and appears under its own, whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
from typing import TYPE_CHECKING

from tokmill.storage import make_directory, storage_errors, sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def private_directory(output: Path) -> Iterator[Path]:
    """Yield a new directory beside `output`, which becomes `output` if the block succeeds.

    A directory that stands at `output` is replaced. After an error nothing is left. What a killed
    attempt left is removed by the next one: its lock is free.

    Raises:
        StorageError: the directory cannot be made, locked or renamed.
    """
    parent = output.absolute().parent
    make_directory(parent)
    _remove_abandoned(parent, output.name)
    private = parent / f".{output.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
    with storage_errors(private):
        private.mkdir()
    lock = os.open(private, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # without locks, nothing is ever abandoned
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield private
        with storage_errors(output):
            _replace(private, output)
    except BaseException:
        shutil.rmtree(private, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def _replace(private: Path, output: Path) -> None:
    """Rename `private` to `output`; a directory that stands there is removed after it."""
    for folder in (private, *(path for path in private.rglob("*") if path.is_dir())):
        sync_directory(folder)
    old = None
    if output.exists() and any(output.iterdir()):
        old = private.with_suffix(".old.tmp")
        output.rename(old)
    private.rename(output)
    sync_directory(output.absolute().parent)
    if old is not None:
        shutil.rmtree(old)


def _remove_abandoned(parent: Path, name: str) -> None:
    """Remove private directories of `name` whose attempts have been killed."""
    ours = re.compile(rf"\.{re.escape(name)}\.[0-9]+-[0-9a-f]{{8}}(\.old)?\.tmp")
    for path in parent.iterdir():
        if ours.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError), _locked(path):
                shutil.rmtree(path)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a directory; raises `OSError` if an attempt holds it, or nobody can."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
