"""Whether a directory holds a complete dataset: every file of its manifest, each with its size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.dataset.checksum import FileEntry
from tokmill.dataset.commit_record import remove_truncated, stands
from tokmill.dataset.layout import MANIFEST
from tokmill.dataset.manifest_shape import shape_problem
from tokmill.dataset.reader import is_intact, read_manifest
from tokmill.errors import VerifyError
from tokmill.run.directory import refuse_foreign_files
from tokmill.storage import storage_errors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokmill.dataset.plan_file import OwnedNames


def complete_manifest(
    directory: Path, owned: OwnedNames, warn: Callable[[str], None]
) -> dict[str, Any] | None:
    """Return the manifest of a complete dataset; None if anything is to be made, which is said.

    Files that were cut are removed, so that they can be made again: the manifest vouches that they
    were this run's. Files of others may stand beside a complete dataset alone.

    Raises:
        StateError: see `refuse_foreign_files`; nothing was changed.
    """
    manifest = _sound_manifest(directory, warn)
    entries = [] if manifest is None else map(FileEntry.from_json, manifest["files"])
    with storage_errors(directory):
        gone = [entry.name for entry in entries if not stands(entry, directory)]
    is_complete = manifest is not None and not gone
    refuse_foreign_files(directory, owned, folders_alone=is_complete)
    with storage_errors(directory):
        for name in gone:
            remove_truncated(name, directory)
    if gone:
        more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
        warn(f"{directory}: {gone[0]}{more} was removed or cut: it is made again")
    return manifest if is_complete else None


def _sound_manifest(directory: Path, warn: Callable[[str], None]) -> dict[str, Any] | None:
    """Return the manifest as it was written; None if it is not there, or was changed."""
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
    return manifest
