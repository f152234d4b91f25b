"""Whether the files of a dataset are those of its manifest: each there, whole, and no other."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

from tokmill.shards.checksum import Digest, FileEntry
from tokmill.shards.layout import MANIFEST, PARTS, REJECTS, is_of_finished_part, pack_names
from tokmill.shards.reader import sidecars_of
from tokmill.storage import LOCK_NAME, open_regular, storage_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_CHUNK_BYTES = 8 << 20
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
    a step's record that a kill left beside its part's.
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
    """Yield the name and kind of what stands in a dataset; its two folders are gone through."""
    pending = [""]
    while pending:
        folder = pending.pop()
        with storage_errors(directory / folder), os.scandir(directory / folder) as entries:
            for entry in entries:
                name = f"{folder}{entry.name}"
                if entry.name.startswith("."):
                    notes += [] if name == LOCK_NAME else [name]
                elif name in (PARTS, REJECTS) and entry.is_dir(follow_symlinks=False):
                    pending.append(f"{name}/")
                else:
                    yield name, _kind(entry)


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "a link"
    if entry.is_dir(follow_symlinks=False):
        return "a directory"
    return _FILE if entry.is_file(follow_symlinks=False) else "neither file nor directory"


def _files_of_shards(manifest: Mapping[str, Any]) -> Iterator[str]:
    packs = manifest.get("packs", {})
    packed = (entry for pack in packs.values() for entry in pack.get("shards", ()))
    for entry in (*manifest["shards"], *packed):
        for ending in ("bin", "idx", *sidecars_of(manifest)):
            yield f"{entry['name']}.{ending}"
    for split in packs:
        yield from pack_names(split)


def _check_file(directory: Path, said: FileEntry, findings: FileFindings) -> None:
    found = _digest(directory / said.name, said.checksum.algorithm).entry(said.name)
    findings.n_files += 1
    findings.n_bytes += found.n_bytes
    if found.n_bytes != said.n_bytes:
        findings.problems.append(
            f"{said.name}: {found.n_bytes} bytes, the manifest says {said.n_bytes}"
        )
    elif found.checksum != said.checksum:
        algorithm = said.checksum.algorithm
        findings.problems.append(f"{said.name}: its bytes have changed ({algorithm})")


def _digest(path: Path, algorithm: str) -> Digest:
    digest = Digest(algorithm)
    with storage_errors(path), open_regular(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest
