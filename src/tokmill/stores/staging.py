"""The staging directory: where a run writes files before they are uploaded.

Private, below the directory for temporary files (TMPDIR), and the same for every run that writes to
the same place: a run that was killed continues with what it left.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.errors import StorageError
from tokmill.storage import make_directory, storage_errors

if TYPE_CHECKING:
    from tokmill.stores.store import Store


def staging_directory(store: Store) -> Path:
    """Return the staging directory of a place in a store; it is made if it is not there.

    Raises:
        StorageError: it cannot be made, or its parent belongs to another user.
    """
    parent = Path(tempfile.gettempdir()) / f"tokmill-{os.getuid()}"
    with storage_errors(parent):
        parent.mkdir(mode=0o700, exist_ok=True)
        found = parent.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StorageError(
            f"{parent}: expected a private directory of this user (mode 700): remove it, or name "
            "another directory for temporary files in TMPDIR"
        )
    path = parent / hashlib.sha256(store.url.encode()).hexdigest()[:16]
    make_directory(path)
    return path
