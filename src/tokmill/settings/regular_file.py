"""Files that a setting names: a pipe or a device is not opened, since it may never end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def check_regular(path: Path) -> None:
    """Raise a `UsageError` for a pipe, a device or a socket."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UsageError(f"{path}: expected a regular file, found a pipe or a device")
