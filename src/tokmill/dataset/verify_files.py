"""Whether the files of a dataset are those of its manifest: each there, whole, and no other."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

from tokmill.dataset.checksum import FileEntry, digest_of
from tokmill.dataset.layout import (
    FOLDERS,
    MANIFEST,
    dataset_entries,
    is_of_finished_part,
    pack_names,
)
from tokmill.dataset.reader import sidecars_of
from tokmill.lock import LOCK_NAME
from tokmill.storage import open_regular, storage_errors
from tokmill.words.plural import plural

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

_FILE = "a file"


class FileFindings(Protocol):
    """Where `check_files` writes what it saw; see `verify.Findings`."""

    n_files: int
    n_bytes: int
    problems: list[str]
    notes: list[str]


def check_files(directory: Path, manifest: Mapping[str, Any], findings: FileFindings) -> set[str]:
    """Check every file against the manifest, whose shape is sound; return those that are there.

    Names that begin with a dot are outside the dataset: noted, and not opened. So are the lock, and
    a commit's record that a kill left beside its part's.
    """
    listed = Counter(entry["name"] for entry in manifest["files"])
    kinds = dict(_tree(directory, findings.notes))
    present = {name for name, kind in kinds.items() if kind == _FILE}
    for name, kind in sorted(kinds.items()):
        if kind != _FILE:
            findings.problems.append(f"{name}: {kind}, not a file of the dataset")
        elif is_of_finished_part(name, listed.__contains__):
            findings.notes.append(name)
        elif name not in listed and name != MANIFEST:
            findings.problems.append(f"{name}: not listed in the manifest")
    findings.problems += [
        f"{MANIFEST}: does not list {name}"
        for name in _files_of_shards(manifest)
        if name not in listed
    ]
    findings.problems += [f"{MANIFEST}: lists {name} twice" for name, n in listed.items() if n > 1]
    for entry in manifest["files"]:
        if entry["name"] in present:
            _check_file(directory, FileEntry.from_json(entry), findings)
        elif entry["name"] not in kinds:
            findings.problems.append(f"{entry['name']}: missing")
    return present & set(listed)


def _tree(directory: Path, notes: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and kind of what stands in a dataset; add what is outside it to the notes."""
    for name, entry in dataset_entries(directory):
        if entry.name.startswith("."):
            notes += [] if name == LOCK_NAME else [name]
        elif name not in FOLDERS or not entry.is_dir(follow_symlinks=False):
            yield name, _kind(entry)


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "a link"
    if entry.is_dir(follow_symlinks=False):
        return "a directory"
    return _FILE if entry.is_file(follow_symlinks=False) else "neither file nor directory"


def _files_of_shards(manifest: Mapping[str, Any]) -> Iterator[str]:
    yield from _files_of(manifest["shards"], manifest)
    yield from files_of_packs(manifest)


def files_of_packs(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of all files of packs: their index, and the rows that were written."""
    for split, pack in manifest.get("packs", {}).items():
        yield from pack_names(split)
        yield from _files_of(pack.get("shards", ()), manifest)


def _files_of(shards: Iterable[Mapping[str, Any]], manifest: Mapping[str, Any]) -> Iterator[str]:
    for entry in shards:
        for ending in ("bin", "idx", *sidecars_of(manifest)):
            yield f"{entry['name']}.{ending}"


def _check_file(directory: Path, said: FileEntry, findings: FileFindings) -> None:
    path = directory / said.name
    with storage_errors(path), open_regular(path) as file:
        found = digest_of(file, said.checksum.algorithm).entry(said.name)
    findings.n_files += 1
    findings.n_bytes += found.n_bytes
    if found.n_bytes != said.n_bytes:
        findings.problems.append(
            f"{said.name}: {plural(found.n_bytes, 'byte')}, the manifest says {said.n_bytes:,}"
        )
    elif found.checksum != said.checksum:
        algorithm = said.checksum.algorithm
        findings.problems.append(f"{said.name}: its bytes have changed ({algorithm})")
