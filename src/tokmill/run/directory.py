"""What may stand in an output directory, and what is removed from it.

Files are removed by name, one by one, and only those that the directory's own plan explains. Names
that begin with a dot are left alone, but for tokmill's own temporary files and checkpoints.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.dataset.checkpoint import remove_stale_checkpoints
from tokmill.dataset.entries import FOLDERS, dataset_entries
from tokmill.dataset.layout import (
    MANIFEST,
    PARTS,
    PLAN,
    PRIVATE_FILE,
    is_of_finished_part,
)
from tokmill.dataset.plan_file import OwnedNames, read_owned_names
from tokmill.errors import StateError
from tokmill.lock import LOCK_NAME
from tokmill.storage import begins_with, storage_errors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokmill.sources.files import SourceFile

_MANIFEST_BEGINNING = b'{\n"config":'


def sweep(directory: Path) -> None:
    """Remove what stopped attempts left: temporary files, but those that a checkpoint names.

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


def refuse_stdin(files: Iterable[SourceFile], directory: Path) -> None:
    """Refuse to continue a run whose input cannot be told from another one; raises `StateError`."""
    if any(file.path == "-" for file in files):
        raise StateError(
            f"{directory}: holds a run already, and standard input cannot be continued: "
            "choose another --output, or run with --overwrite to start anew"
        )


def refuse_unplanned_files(directory: Path) -> None:
    """Refuse a directory that has no plan of a run but files, before a lock is put into it.

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
    """Refuse to write among files that are not of the run in a directory.

    Args:
        directory: the output directory.
        owned: the names of its plan; None if it has no plan: then every visible file is foreign.
        folders_alone: look only for what stands in place of the run's own folders.

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
    """Return whether something that stands in an output directory cannot be of its run."""
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
    """Return whether a file begins as every manifest of tokmill does."""
    return begins_with(path, _MANIFEST_BEGINNING)


def clear(directory: Path, owned: OwnedNames | None) -> None:
    """Remove the files of a run from its directory, name by name; see `refuse_foreign_files`.

    The manifest and the records go first: stopped in between, they must not vouch for what is gone.
    The plan goes last: without it, nothing would explain the rest.

    Raises:
        StateError: it holds files that are not of this run; nothing was removed.
    """
    refuse_foreign_files(directory, owned)
    with storage_errors(directory):
        names = [name for name, entry in dataset_entries(directory) if _is_removable(name, entry)]
        for name in sorted(names, key=_order_of_removal):
            if name != PLAN:
                (directory / name).unlink()
        for folder in FOLDERS:
            with suppress(OSError):  # not there, or somebody's hidden file stands in it
                (directory / folder).rmdir()
        (directory / PLAN).unlink(missing_ok=True)


def _is_removable(name: str, entry: os.DirEntry[str]) -> bool:
    """Return whether to remove an entry of a directory in which nothing is foreign."""
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
    """Return whether a directory holds a plan and nothing that its run has made since."""
    if not os.path.lexists(directory / PLAN):
        return False
    kept = {PLAN, *FOLDERS}
    return not any(
        name not in kept and (not entry.name.startswith(".") or entry.name.endswith(".checkpoint"))
        for name, entry in dataset_entries(directory)
    )
