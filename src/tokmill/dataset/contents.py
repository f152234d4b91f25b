"""What stands where a dataset will be written: whose it is, and what `--overwrite` removes.

One rule for every command that writes a directory: with `--overwrite`, a dataset or an export of
tokmill is replaced, complete or interrupted, whatever made it. Its own lists say which files are
its; if anything else stands there, that is named, and nothing is removed.

| what stands there                         | its files                                            |
|-------------------------------------------|------------------------------------------------------|
| an export                                 | those of its record                                  |
| a dataset with an intact manifest         | those of the manifest                                |
| one without, or with a damaged manifest   | those that its plan can make                         |

Besides, whatever a process that was killed can have left there: its lock, temporary files, notes of
tasks, indexes of packs.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from tokmill.dataset.checksum import FileEntry
from tokmill.dataset.layout import (
    CUT_INDEX,
    EXPORT_RECORD,
    FOLDERS,
    LOCK_NAME,
    MANIFEST,
    MIX,
    MIX_FILE,
    MIX_REQUEST,
    PARTS,
    PLAN,
    PRIVATE_FILE,
    STOPPED_REJECTS,
)
from tokmill.dataset.made_by import MANIFEST_BEGINNING, check_versions
from tokmill.dataset.plan_file import OwnedNames
from tokmill.dataset.reader import sound_manifest
from tokmill.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tokmill.dataset.place import Place

    Entries = Mapping[str, int | None]

DATASET, EXPORT = "a dataset", "an export"

NOTE = ".task-"
"""How the name of a task's note in `parts/` begins; see `run.tasks`."""

_NOTE = re.compile(rf"{PARTS}/{re.escape(NOTE)}[0-9]+-of-[0-9]+\.json")


@dataclass(frozen=True, slots=True)
class Contents:
    """What stands in a place, besides its lock.

    Attributes:
        where: the place, for messages.
        what: `DATASET`, `EXPORT`, or '' if neither stands there.
        ours: the files of it that are there, in the order in which they are to be removed.
        folders: its folders, inner ones first, but those that every dataset has.
        foreign: everything else, by name.
    """

    where: str
    what: str
    ours: tuple[str, ...]
    folders: tuple[str, ...]
    foreign: tuple[str, ...]

    @property
    def in_the_way(self) -> tuple[str, ...]:
        """Return what is foreign, but hidden files of others: a dataset can be made beside them."""
        return tuple(
            name
            for name in self.foreign
            if not is_hidden(name) or name == MIX or name.startswith(f"{MIX}/")
        )

    def check_replaceable(self) -> None:
        """Check that everything there may be removed.

        Raises:
            StateError: something is of no dataset and no export; the message names it.
        """
        foreign = self.foreign if self.what else self.in_the_way
        if foreign:
            raise StateError(foreign_message(self.where, self.what, foreign))


def foreign_message(where: str, what: str, foreign: Sequence[str]) -> str:
    """Return the message that a place holds files of others; `what`: see `Contents`."""
    first, *more = foreign
    names = f"{first} and {len(more)} more" if more else first
    if not what:
        return (
            f"{where}: holds files, but no dataset or export of tokmill ({names}): nothing was "
            "changed; name an empty or new output"
        )
    return (
        f"{where}: holds more than {what} ({names}): nothing was changed; move that away, or name "
        "another output"
    )


def contents_of(place: Place) -> Contents:
    """Return what stands in a place.

    Raises:
        StateError: the record of an export is damaged, `plan.json` is not tokmill's, or a dataset
            is of a later version.
        StorageError: the place cannot be read.
    """
    entries = place.entries((*FOLDERS, MIX))
    check_versions(place, entries)
    if entries.get(EXPORT_RECORD) is None:
        is_listed = _names_of_dataset(place, entries)
        if is_listed is None:
            return _sorted_out(place.where, "", entries, (), is_temporary)
        return _sorted_out(place.where, DATASET, entries, (MIX,), is_listed)
    record = parse_export_record(place.read(EXPORT_RECORD), f"{place.where}/{EXPORT_RECORD}")
    names = {EXPORT_RECORD, *(file["name"] for file in record["files"])}
    parents = {str(folder) for name in names for folder in PurePosixPath(name).parents}
    folders = tuple(sorted(parents - {"."}, reverse=True))
    return _sorted_out(place.where, EXPORT, place.entries(folders), folders, names.__contains__)


def _sorted_out(
    where: str,
    what: str,
    entries: Entries,
    folders: tuple[str, ...],
    is_ours: Callable[[str], bool],
) -> Contents:
    """Return the contents of a place, by whether a name is of what stands there."""
    ours: list[str] = []
    foreign: list[str] = []
    for name, n_bytes in entries.items():
        is_file = n_bytes is not None  # no link, no folder
        if is_file and name == LOCK_NAME:
            continue
        (ours if is_file and is_ours(name) else foreign).append(name)
    # Without the list of its files, the rest would be foreign after a kill: the list goes last.
    lists = (EXPORT_RECORD, PLAN, MIX_REQUEST, MANIFEST)
    order = {MANIFEST: 0, next((name for name in lists if name in ours), ""): 3}
    ours.sort(key=lambda name: order.get(name, 1 if name.startswith(f"{PARTS}/") else 2))
    return Contents(where, what, tuple(ours), folders, tuple(foreign))


def _names_of_dataset(place: Place, entries: Entries) -> Callable[[str], bool] | None:
    """Return which names are of the dataset that stands in a place; None without one."""
    content = b"" if entries.get(MANIFEST) is None else place.read(MANIFEST)
    is_tokmills = content.startswith(MANIFEST_BEGINNING)
    manifest = sound_manifest(content, place.where) if is_tokmills else None
    if manifest is not None:
        listed = {MANIFEST, *(entry.name for entry in manifest.files)}
        may_have = OwnedNames()  # a stranger's manifest may list anything
        return lambda name: (name in listed and may_have.has(name)) or _may_be_left(name)
    owned = owned_names(place, entries)
    if owned is None and is_tokmills:
        owned = OwnedNames()
    if owned is None and entries.get(MIX_REQUEST) is not None:
        owned = OwnedNames(0)  # a mix without a plan has hidden files alone
    if owned is None:
        return None
    names = owned
    return lambda name: (
        (names.has(name) and (is_tokmills or name != MANIFEST)) or _may_be_left(name)
    )


def owned_names(place: Place, entries: Entries) -> OwnedNames | None:
    """Return the names that the plan of a place owns; None without a plan.

    Raises:
        StateError: its `plan.json` is not tokmill's.
    """
    if PLAN not in entries:
        return None
    where = f"{place.where}/{PLAN}"
    if entries[PLAN] is None:
        raise StateError(f"{where}: not a regular file: choose another --output")
    return OwnedNames.of_plan(place.read(PLAN), where)


def is_hidden(name: str) -> bool:
    """Return whether a name, or a folder of it, begins with a dot."""
    return "/." in f"/{name}"


def is_note(name: str) -> bool:
    """Return whether a name, relative to the place, is one of a task's note."""
    return _NOTE.fullmatch(name) is not None


def is_temporary(name: str) -> bool:
    """Return whether a name, relative to the place, is one of `storage.PendingFile`."""
    folder, _, last = name.rpartition("/")
    private = PRIVATE_FILE.fullmatch(last)
    if private is None:
        return False
    final = f"{folder}/{private['name']}" if folder else private["name"]
    is_of_task = is_note(final) or MIX_FILE.fullmatch(final) is not None
    return (
        is_of_task or OwnedNames().has(final) or PRIVATE_FILE.fullmatch(private["name"]) is not None
    )


_MAY_BE_LEFT = (MIX_FILE, CUT_INDEX, STOPPED_REJECTS)


def _may_be_left(name: str) -> bool:
    """Return whether a killed process may have left a file of this name beside any dataset."""
    is_of_process = is_temporary(name) or is_note(name)
    return is_of_process or any(kind.fullmatch(name) for kind in _MAY_BE_LEFT)


def remove_contents(place: Place) -> None:
    """Remove the dataset or export of a place, file by file; its lock and `FOLDERS` stay.

    A power cut may lose some removals and keep later ones. So what says that all is there is
    durably gone before anything else is removed; and all else, before the list of its files is.

    Raises:
        StateError: see `Contents.check_replaceable`; nothing was removed.
        StorageError: a file cannot be removed.
    """
    contents = contents_of(place)
    contents.check_replaceable()
    for name in contents.ours:
        if name == contents.ours[-1]:
            place.sync()
        place.remove(name)
        if name == MANIFEST:
            place.sync()
    for folder in contents.folders:
        place.remove_folder(folder)


def remove_leftovers(place: Place) -> None:
    """Remove the temporary files of stopped attempts; only a directory can have them."""
    if place.mapped is None:
        return
    for name, n_bytes in place.entries().items():
        if n_bytes is not None and is_temporary(name):
            place.remove(name)


def parse_export_record(content: bytes, where: str) -> dict[str, Any]:
    """Return the record of an export; raises `StateError` if it is none."""
    try:
        record = json.loads(content)
        entries = [FileEntry.from_json(file) for file in record["files"]]
        is_ours = record["format"] == "tokmill export" and all(map(_is_inside, entries))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StateError(f"{where}: damaged: {error}") from None
    if not is_ours:
        raise StateError(f"{where}: not the record of an export")
    return dict(record)


def _is_inside(entry: FileEntry) -> bool:
    """Return whether a file of an export stands in it; raises `ValueError` for a wrong name."""
    if b"\0" in os.fsencode(entry.name):
        return False
    path = PurePosixPath(entry.name)
    return not path.is_absolute() and ".." not in path.parts and isinstance(entry.n_bytes, int)
