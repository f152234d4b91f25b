"""A finished dataset as the budgets see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.memory.dataset import dataset_size
from tokmill.memory.disk import dataset_disk
from tokmill.page.budgets import OnDisk
from tokmill.storage import file_sizes, free_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def on_disk(directory: Path, manifest: Mapping[str, Any]) -> OnDisk:
    """Give what a finished dataset takes.

    Raises:
        VerifyError: a file is missing, or not as large as the manifest says.
        StorageError: the directory cannot be read.
    """
    found = dataset_disk(manifest, file_sizes(directory))
    size = dataset_size(manifest)
    return OnDisk(str(directory), size, found.bill, free_bytes(directory), found)
