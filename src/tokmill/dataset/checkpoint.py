"""The checkpoint of a part: the durable beginning of the commit that is being written.

A private file, `parts/.PPPPPPP.checkpoint`, not part of the dataset. It holds the
fields of a commit's record, with the temporary names of the files that are still being written
and their sums at that moment. An attempt that continues truncates them to those sizes and appends.
No byte of the dataset depends on checkpoints; one that does not fit is ignored.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from stat import S_ISREG
from typing import TYPE_CHECKING, Any

from tokmill.dataset.canonical import canonical_json, sha256_hex
from tokmill.dataset.commit_record import Commit
from tokmill.dataset.layout import (
    PARTS,
    PRIVATE_FILE,
    REJECTS,
    commit_name,
    is_of_finished_part,
    part_name,
)
from tokmill.storage import open_regular, storage_errors, sync_directory, write_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_VERSION = 1
_SUFFIX = ".checkpoint"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Commit `number` of a part, up to the record at `commit.next`, which is not in it."""

    part: int
    fingerprint: str
    number: int
    commit: Commit

    def names(self) -> list[str]:
        """Return the temporary names of its files, relative to the dataset."""
        return [entry.name for entry in self.commit.files()]

    def as_bytes(self) -> bytes:
        """Return the checkpoint as the bytes of its file."""
        data = {
            "version": _VERSION,
            "part": self.part,
            "fingerprint": self.fingerprint,
            "number": self.number,
            "step": self.commit.as_json(),
        }
        return canonical_json({**data, "sha256": sha256_hex(canonical_json(data))})


def checkpoint_path(directory: Path, part: int) -> Path:
    """Return the path of a part's checkpoint."""
    return directory / PARTS / f".{part:07d}{_SUFFIX}"


def write_checkpoint(directory: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint whose files are durable; raises `StorageError`."""
    with storage_errors(directory):
        sync_directory(directory)  # the names of its files
        if checkpoint.commit.rejects is not None:
            sync_directory(directory / REJECTS)
    write_file(checkpoint_path(directory, checkpoint.part), checkpoint.as_bytes(), replace=True)


def read_checkpoint(path: Path) -> Checkpoint | None:
    """Read a checkpoint; None if it is not there, damaged, or of another version."""
    try:
        with open_regular(path) as file:
            data: dict[str, Any] = json.loads(file.read())
        written = data.pop("sha256")
        if data["version"] != _VERSION or written != sha256_hex(canonical_json(data)):
            return None
        commit = Commit.from_json(data["step"])
        found = Checkpoint(data["part"], data["fingerprint"], data["number"], commit)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    is_sound = commit.next is not None and all(map(_is_temporary, found.names()))
    return found if is_sound else None


def final_name(temporary: str) -> str:
    """Return the final name of a temporary file, or '' if this is not a temporary name."""
    found = PRIVATE_FILE.fullmatch(temporary)
    return (found["name"] or "") if found and "/" not in temporary else ""


def _is_temporary(name: str) -> bool:
    return bool(final_name(name.removeprefix(f"{REJECTS}/")))


def remove_checkpoint(directory: Path, part: int) -> None:
    """Remove the checkpoint of a part and its files, if they exist."""
    path = checkpoint_path(directory, part)
    checkpoint = read_checkpoint(path)
    with storage_errors(path):
        for name in () if checkpoint is None else checkpoint.names():
            (directory / name).unlink(missing_ok=True)
        path.unlink(missing_ok=True)


def _checkpoint_paths(directory: Path) -> list[Path]:
    """Return the files with exactly the name of a checkpoint; others are not tokmill's."""
    paths = sorted((directory / PARTS).glob(f".*{_SUFFIX}"))
    return [p for p in paths if PRIVATE_FILE.fullmatch(p.name) and S_ISREG(p.lstat().st_mode)]


def _open_checkpoints(directory: Path) -> Iterator[Checkpoint]:
    """Yield the checkpoints of an output directory whose commit is not finished yet."""
    for path in _checkpoint_paths(directory):
        found = read_checkpoint(path)
        if found is None or path != checkpoint_path(directory, found.part):
            continue
        records = (part_name(found.part), commit_name(found.part, found.number))
        if not any((directory / PARTS / record).exists() for record in records):
            yield found


def unfinished_records(directory: Path) -> int:
    """Return the number of records in the commits and checkpoints of unfinished parts."""
    commits = [checkpoint.commit for checkpoint in _open_checkpoints(directory)]
    for path in (directory / PARTS).glob("[0-9]*-*.json"):
        if not is_of_finished_part(
            f"{PARTS}/{path.name}", lambda name: (directory / name).exists()
        ):
            commits += [
                Commit.from_json(commit) for commit in json.loads(path.read_bytes())["steps"]
            ]
    return sum(counts.records for commit in commits for counts in commit.counts.values())


def remove_stale_checkpoints(directory: Path) -> set[str]:
    """Remove checkpoints of finished commits; return the names of the other checkpoints' files."""
    kept = list(_open_checkpoints(directory))
    paths = {checkpoint_path(directory, checkpoint.part) for checkpoint in kept}
    with storage_errors(directory):
        for path in _checkpoint_paths(directory):
            if path not in paths:
                path.unlink(missing_ok=True)
    return {name for checkpoint in kept for name in checkpoint.names()}
