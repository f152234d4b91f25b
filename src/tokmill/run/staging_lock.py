"""Keep two processes of one machine apart that work on the same place in an object store."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

from tokmill.errors import StateError
from tokmill.lock import LOCK_NAME, locked
from tokmill.storage import make_directory
from tokmill.stores.staging import staging_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tokmill.stores.store import Store


@contextlib.contextmanager
def locked_staging(store: Store, *, is_shared: bool = False) -> Iterator[Path]:
    """Take the lock of the staging directory of a place in a store, and yield the directory.

    Raises:
        StateError: another process of this machine works on that place, and does not share it.
        StorageError: see `staging_directory` and `locked`.
    """
    staging = staging_directory(store)
    with only_here(staging, f"{store.url}: another run", is_shared=is_shared):
        yield staging


@contextlib.contextmanager
def only_here(directory: Path, who: str, *, is_shared: bool = False) -> Iterator[None]:
    """Take the lock of a directory of this machine, which is made if it is not there.

    Raises:
        StateError: another process, `who` in the message, holds it.
        StorageError: see `locked`.
    """
    make_directory(directory)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(directory, is_shared=is_shared))
        except StateError:
            raise StateError(f"{who} is working on this machine: wait for its end") from None
        yield


def clear_staging(staging: Path) -> None:
    """Remove all but the lock: another process may have opened it, and wait for it."""
    with contextlib.suppress(OSError):
        for path in staging.iterdir():
            if path.name != LOCK_NAME:
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
