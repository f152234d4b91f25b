"""Files of web pages: where they may stand, and how they appear."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.errors import UsageError
from tokmill.storage import storage_errors, write_file

if TYPE_CHECKING:
    from pathlib import Path


def check_page(path: Path, directory: Path, option: str) -> None:
    """Check that a page may be written beside a dataset; `option` names the path in messages.

    Raises:
        UsageError: a directory is there, or it is inside the dataset.
    """
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: not a file: {option} wants the name of a file to write")
    if directory.resolve() in path.resolve().parents:
        raise UsageError(
            f"{path}: is inside the dataset, whose files are checked: name a file beside it"
        )


def write_page(path: Path, page: str) -> int:
    """Write a page atomically, and return its bytes.

    Raises:
        StorageError: it cannot be written.
    """
    data = page.encode()
    target = path.resolve() if path.is_symlink() else path
    write_file(target, data, replace=True)
    with storage_errors(path):
        target.chmod(0o644)  # no file of a dataset: its owner may change it
    return len(data)
