"""What stands in a dataset's directory, whoever put it there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tokmill.dataset.layout import PARTS, REJECTS
from tokmill.storage import storage_errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDERS = (PARTS, REJECTS)
"""The only directories inside a dataset."""


def dataset_entries(directory: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield what stands in a directory and in its two folders, sorted, by name relative to it.

    A link in place of a folder is not followed. One folder's names are held at a time.

    Raises:
        StorageError: a folder cannot be read.
    """
    for folder in ("", *FOLDERS):
        place = directory / folder
        if folder and (place.is_symlink() or not place.is_dir()):
            continue
        with storage_errors(place), os.scandir(place) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            yield (f"{folder}/{entry.name}" if folder else entry.name), entry
