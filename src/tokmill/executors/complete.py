"""Whether a directory holds a complete dataset: every file of its manifest, each with its size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.errors import VerifyError
from tokmill.shards.checksum import FileEntry
from tokmill.shards.layout import MANIFEST
from tokmill.shards.manifest_shape import shape_problem
from tokmill.shards.reader import is_intact, read_manifest
from tokmill.shards.record import remove_cut, stands
from tokmill.storage import storage_errors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def complete_manifest(directory: Path, warn: Callable[[str], None]) -> dict[str, Any] | None:
    """Return the manifest of a complete dataset; None if anything is to be made, which is said.

    Files that were cut are removed, so that they can be made again: the manifest vouches that they
    were this run's.
    """
    if not (directory / MANIFEST).exists():
        return None
    try:
        manifest = read_manifest(directory)
    except VerifyError as error:
        warn(f"{error}: it is written again")
        return None
    if not is_intact(manifest) or shape_problem(manifest):
        warn(f"{directory / MANIFEST}: was changed: it is written again")
        return None
    entries = map(FileEntry.from_json, manifest["files"])
    with storage_errors(directory):
        gone = [entry.name for entry in entries if not stands(entry, directory)]
        for name in gone:
            remove_cut(name, directory)
    if gone:
        more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
        warn(f"{directory}: {gone[0]}{more} was removed or cut: it is made again")
    return None if gone else manifest
