"""Check and clean an output directory: foreign files, leftovers, a complete dataset.

Files are removed by name, one by one, and only those that the directory's own plan explains. Names
that begin with a dot are never touched, except tokmill's own temporary files and checkpoints.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.dataset.checkpoint import remove_stale_checkpoints
from tokmill.dataset.checksum import FileEntry
from tokmill.dataset.commit_record import is_intact_file, remove_truncated
from tokmill.dataset.layout import (
    FOLDERS,
    MANIFEST,
    PARTS,
    PLAN,
    PRIVATE_FILE,
    dataset_entries,
    is_of_finished_part,
)
from tokmill.dataset.manifest_shape import shape_problem
from tokmill.dataset.plan_file import OwnedNames, read_owned_names
from tokmill.dataset.reader import is_intact, read_manifest
from tokmill.errors import StateError, VerifyError
from tokmill.lock import LOCK_NAME
from tokmill.storage import begins_with, storage_errors

if TYPE_CHECKING:
    from collections.abc import Callable

_MANIFEST_BEGINNING = b'{\n"config":'


def remove_leftovers(directory: Path) -> None:
    """Remove the temporary files of stopped attempts that no checkpoint names.

    Also remove checkpoints older than a commit of the same part, and commit records of parts that
    have their own record: a kill can leave both.
    """
    kept = remove_stale_checkpoints(directory)
    with storage_errors(directory):
        for name, entry in dataset_entries(directory):
            is_left = (_is_temporary(name) and name not in kept) or is_of_finished_part(
                name, lambda record: (directory / record).is_file()
            )
            if is_left and entry.is_file(follow_symlinks=False):
                (directory / name).unlink(missing_ok=True)


def _is_temporary(name: str) -> bool:
    """Return whether a name, relative to the directory, is one of `storage.PendingFile`."""
    folder, _, last = name.rpartition("/")
    found = PRIVATE_FILE.fullmatch(last)
    if found is None or found["name"] is None:
        return False
    final = f"{folder}/{found['name']}" if folder else found["name"]
    return OwnedNames().has(final) or PRIVATE_FILE.fullmatch(found["name"]) is not None


def refuse_unplanned_files(directory: Path) -> None:
    """Refuse a directory with files but without a plan, before a lock is put into it.

    Where there is a lock, another run may be writing: `refuse_foreign_files` looks again once
    the lock is held.

    Raises:
        StateError: names the first such file; nothing was changed.
    """
    with storage_errors(directory):
        may_look = directory.is_dir() and not os.path.lexists(directory / LOCK_NAME)
    if may_look and read_owned_names(directory) is None:
        refuse_foreign_files(directory, None)


def refuse_foreign_files(
    directory: Path, owned: OwnedNames | None, *, folders_alone: bool = False
) -> None:
    """Refuse to write among files that do not belong to the run of a directory.

    `owned`: the names of its plan; None without a plan: then every visible file is foreign.
    `folders_alone`: check only that no file is in place of a folder.

    Raises:
        StateError: names the first such file; nothing was changed.
    """
    with storage_errors(directory):
        foreign = [
            name
            for name, entry in dataset_entries(directory)
            if (name in FOLDERS or not folders_alone) and _is_foreign(name, entry, owned)
        ]
    if not foreign:
        return
    names = f"{foreign[0]} and {len(foreign) - 1} more" if len(foreign) > 1 else foreign[0]
    if owned is None and _is_manifest(directory / MANIFEST):
        raise StateError(
            f"{directory}: holds a dataset without its {PLAN}: restore that file from a copy, "
            "or choose another --output"
        )
    if owned is None:
        raise StateError(
            f"{directory}: holds files but no plan of a run ({names}): "
            "choose an empty or new directory"
        )
    raise StateError(
        f"{directory}: holds more than this dataset ({names}): nothing was changed; "
        "move that away, or choose another --output"
    )


def _is_foreign(name: str, entry: os.DirEntry[str], owned: OwnedNames | None) -> bool:
    """Return whether an entry of an output directory cannot belong to its run."""
    if entry.name.startswith("."):
        return False
    if owned is None:
        return True
    if name in FOLDERS:
        return not entry.is_dir(follow_symlinks=False)
    if not entry.is_file(follow_symlinks=False) or not owned.has(name):
        return True
    return name == MANIFEST and not _is_manifest(Path(entry.path))


def _is_manifest(path: Path) -> bool:
    """Return whether a file begins like every manifest of tokmill."""
    return begins_with(path, _MANIFEST_BEGINNING)


def remove_dataset(directory: Path, owned: OwnedNames | None) -> None:
    """Remove the files of a run from its directory, name by name.

    Manifest and records go first: if this stops halfway, no record names a removed file. The plan
    goes last: without it, the rest would be foreign.

    Raises:
        StateError: see `refuse_foreign_files`; nothing was removed.
    """
    refuse_foreign_files(directory, owned)
    with storage_errors(directory):
        names = [name for name, entry in dataset_entries(directory) if _is_removable(name, entry)]
        for name in sorted(names, key=_order_of_removal):
            if name != PLAN:
                (directory / name).unlink()
        for folder in FOLDERS:
            with suppress(OSError):  # it is not there, or holds a hidden file of the user
                (directory / folder).rmdir()
        (directory / PLAN).unlink(missing_ok=True)


def _is_removable(name: str, entry: os.DirEntry[str]) -> bool:
    """Return whether to remove an entry of a directory without foreign files."""
    if not entry.is_file(follow_symlinks=False):
        return False
    if not entry.name.startswith("."):
        return True
    return PRIVATE_FILE.fullmatch(entry.name) is not None and (
        name.startswith(f"{PARTS}/") or _is_temporary(name)
    )


def _order_of_removal(name: str) -> tuple[bool, bool]:
    return name != MANIFEST, not name.startswith(f"{PARTS}/")


def has_only_plan(directory: Path) -> bool:
    """Return whether a directory holds a plan and no other file of its run."""
    return os.path.lexists(directory / PLAN) and holds_no_commits(directory)


def holds_no_commits(directory: Path) -> bool:
    """Return whether a directory holds no file of a run, except a plan."""
    kept = {PLAN, *FOLDERS}
    return not any(
        name not in kept and (not entry.name.startswith(".") or entry.name.endswith(".checkpoint"))
        for name, entry in dataset_entries(directory)
    )


def complete_manifest(
    directory: Path, owned: OwnedNames, warn: Callable[[str], None]
) -> dict[str, Any] | None:
    """Return the manifest of a complete dataset: each of its files is there, with its size.

    Otherwise warn, remove the files of a wrong size, so that the run makes them again, and return
    None. Foreign files are allowed only beside a complete dataset.

    Raises:
        StateError: see `refuse_foreign_files`; nothing was changed.
    """
    manifest = _sound_manifest(directory, warn)
    entries = [] if manifest is None else map(FileEntry.from_json, manifest["files"])
    with storage_errors(directory):
        wrong = [entry.name for entry in entries if not is_intact_file(entry, directory)]
    is_complete = manifest is not None and not wrong
    refuse_foreign_files(directory, owned, folders_alone=is_complete)
    with storage_errors(directory):
        for name in wrong:
            remove_truncated(name, directory)
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        warn(f"{directory}: {wrong[0]}{more} was removed or cut: it is made again")
    return manifest if is_complete else None


def _sound_manifest(directory: Path, warn: Callable[[str], None]) -> dict[str, Any] | None:
    """Return the manifest as it was written; None if it is not there or was changed."""
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
