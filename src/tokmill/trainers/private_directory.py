"""A directory that is made under a private name and appears under its own, whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.dataset.contents import contents_of, foreign_message
from tokmill.dataset.reader import surrounding_dataset
from tokmill.errors import StateError, StorageError
from tokmill.place import open_place
from tokmill.storage import (
    KEPT,
    free_bytes,
    make_directory,
    storage_errors,
    sync_directory,
)
from tokmill.words import size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_HERE, _RENAME_EXCHANGE = -100, 2
"""Of Linux: AT_FDCWD, and the flag of renameat2."""


def is_taken(output: Path) -> bool:
    """Return whether a directory that holds something stands at `output`.

    Raises:
        StateError: something else stands there, or a directory that cannot be replaced.
        StorageError: it cannot be read.
    """
    with storage_errors(output):
        if output.is_symlink() or (output.exists() and not output.is_dir()):
            what = "a symbolic link: name its target" if output.is_symlink() else "a file"
            raise StateError(f"{output}: expected a directory or nothing, found {what}")
        if not output.exists():
            return False
        if any(output.iterdir()):
            return True
        is_mount = output.absolute().is_mount()
        if is_mount or output.samefile(Path.cwd()):
            what = "a mount point" if is_mount else "the current directory"
            raise StateError(
                f"{output}: is {what}, which no directory can replace: name one inside it"
            )
        return False


def check_replaceable(output: Path, inputs: Iterable[Path], *, overwrite: bool) -> None:
    """Check that a directory may be written at `output`; see `dataset.contents` for the rule.

    `inputs`: paths that are read, of which none may be replaced.

    Raises:
        StateError: an input or a file of others stands there, or `overwrite` is not set.
        TokmillError: the contents cannot be read.
    """
    if not is_taken(output):
        return
    contents = contents_of(open_place(str(output)))
    if not contents.what:
        raise StateError(foreign_message(contents.where, "", contents.foreign))
    if not overwrite:
        raise StateError(f"{output}: already holds {contents.what}: --overwrite replaces it")
    target = output.resolve()
    for path in (one.resolve() for one in inputs):
        if target in (path, *path.parents):
            raise StateError(f"{path}: is inside {output}: name another output")
    contents.check_replaceable()
    if not os.access(output, os.W_OK | os.X_OK):
        raise StorageError(f"{output}: permission denied")


def check_outside_datasets(output: Path) -> None:
    """Check that `output` is not inside a dataset, whose files are checked; raises `StateError`."""
    if dataset := surrounding_dataset(output):
        raise StateError(f"{output}: is inside the dataset {dataset}: name a directory beside it")


def check_room(output: Path, n_bytes: int, what: str) -> None:
    """Check that `n_bytes` more fit beside `output`; raises `StorageError` about `what`."""
    free = free_bytes(output.absolute().parent)
    if n_bytes > free:
        raise StorageError(f"{output}: {what} needs {size(n_bytes)}, {size(free)} are free")


@contextlib.contextmanager
def private_directory(output: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a new directory beside `output`, which becomes `output` if the block succeeds.

    `replace`: a directory that stands at `output` at the end is replaced, else it must be empty.
    After an error nothing is left. What a killed attempt left is removed by the next one: its lock
    is free.

    Raises:
        StateError: something was written to `output` meanwhile.
        StorageError: the directory cannot be made, locked or renamed, or nothing fits in it.
    """
    parent = output.absolute().parent
    make_directory(parent)
    _remove_abandoned(parent, output.name)
    private = parent / f".{output.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
    with storage_errors(output):
        private.mkdir()
    lock = os.open(private, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # without locks, nothing is ever abandoned
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield private
        if is_taken(output) and not replace:
            raise StateError(f"{output}: something was written there meanwhile: name another")
        with storage_errors(output):
            _replace(private, output)
    except StorageError as error:
        shutil.rmtree(private, ignore_errors=True)
        text = str(error).replace(str(private), str(output))
        text = text.replace(KEPT, "nothing was written: make room and run the same command again")
        raise StorageError(text) from error
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
        if _exchange(private, output):
            try:
                _check_only_ours(private, output)
            except BaseException:
                _exchange(private, output)
                raise
            sync_directory(output.absolute().parent)
            shutil.rmtree(private)
            return
        old = private.with_suffix(".old.tmp")
        output.rename(old)
    try:
        if old is not None:
            _check_only_ours(old, output)
        private.rename(output)
    except BaseException:
        if old is not None:
            old.rename(output)
        raise
    sync_directory(output.absolute().parent)
    if old is not None:
        shutil.rmtree(old)


def _check_only_ours(moved: Path, output: Path) -> None:
    """Check what stood at `output`, now that nobody can write to it by its name any more.

    Raises:
        StateError: a file of others came there since `check_replaceable`.
    """
    contents = replace(contents_of(open_place(str(moved))), where=str(output))
    contents.check_replaceable()


def _exchange(one: Path, other: Path) -> bool:
    """Let two directories change their names in one step; return whether the system can.

    A process that is killed leaves either the old directory under its name, or the new one.
    """
    import ctypes

    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    if rename is None:
        return False
    paths = os.fsencode(one.absolute()), os.fsencode(other.absolute())
    return bool(rename(_HERE, paths[0], _HERE, paths[1], _RENAME_EXCHANGE) == 0)


def _remove_abandoned(parent: Path, name: str) -> None:
    """Remove private directories of `name` whose attempts have been killed."""
    ours = re.compile(rf"\.{re.escape(name)}\.[0-9]+-[0-9a-f]{{8}}(\.old)?\.tmp")
    try:
        found = list(parent.iterdir())
    except PermissionError:  # files may be made here, but not listed
        return
    for path in found:
        if ours.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError):  # an attempt holds the lock, or nobody can
                descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path)
                finally:
                    os.close(descriptor)
