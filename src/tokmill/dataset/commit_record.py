"""Commit records: what a commit and a part wrote, as JSON that is the same for the same bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from stat import S_ISREG
from typing import TYPE_CHECKING, Any

from tokmill.dataset.canonical import canonical_json
from tokmill.dataset.checksum import FileEntry
from tokmill.dataset.counts import Counts
from tokmill.dataset.layout import DATASET_FILE, FORMAT_VERSION
from tokmill.dataset.writer import ShardEntry
from tokmill.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where the commit after this one begins: slice of the part, and place inside that slice."""

    slice: int
    line: int
    byte_offset: int


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit inside a part: a shard of each split that got documents, and their rejects.

    `counts` are by slice of the part. `length_histogram[i]` counts documents of 2^i to 2^(i+1) - 1
    tokens, eos included. `next` is None in a part's last commit.
    """

    shards: tuple[ShardEntry, ...]
    rejects: FileEntry | None
    counts: Mapping[int, Counts]
    length_histogram: tuple[int, ...]
    next: ResumePoint | None

    def as_json(self) -> dict[str, Any]:
        """Give the commit as plain values."""
        return {
            "shards": [
                {
                    "split": shard.split,
                    "documents": shard.n_documents,
                    "tokens": shard.n_tokens,
                    "files": [entry.as_json() for entry in shard.files],
                }
                for shard in self.shards
            ],
            "rejects": None if self.rejects is None else self.rejects.as_json(),
            "slices": [{"slice": i, **counts.as_json()} for i, counts in self.counts.items()],
            "length_histogram": list(self.length_histogram),
            "next": None
            if self.next is None
            else {
                "slice": self.next.slice,
                "line": self.next.line,
                "byte_offset": self.next.byte_offset,
            },
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Commit:
        """Read what `as_json` gave."""
        return cls(
            tuple(
                ShardEntry(
                    shard["split"],
                    shard["documents"],
                    shard["tokens"],
                    tuple(map(FileEntry.from_json, shard["files"])),
                )
                for shard in data["shards"]
            ),
            None if data["rejects"] is None else FileEntry.from_json(data["rejects"]),
            {entry["slice"]: Counts.from_json(entry) for entry in data["slices"]},
            tuple(data["length_histogram"]),
            None if data["next"] is None else ResumePoint(**data["next"]),
        )


@dataclass(frozen=True, slots=True)
class PartRecord:
    """A finished part: its fingerprint and commits."""

    part: int
    fingerprint: str
    commits: tuple[Commit, ...]

    def as_bytes(self) -> bytes:
        """Give the record as the bytes of its file."""
        return canonical_json(
            {
                "format_version": FORMAT_VERSION,
                "part": self.part,
                "fingerprint": self.fingerprint,
                "steps": [commit.as_json() for commit in self.commits],
            }
        )

    def files(self) -> Iterator[FileEntry]:
        """Give the files of all commits, in the order of the dataset."""
        for commit in self.commits:
            for shard in commit.shards:
                yield from shard.files
            if commit.rejects is not None:
                yield commit.rejects

    def counts(self) -> Counts:
        """Give the counts of the whole part."""
        total = Counts()
        for commit in self.commits:
            for counts in commit.counts.values():
                total.add(counts)
        return total


def read_record(path: Path, fingerprint: str) -> PartRecord | None:
    """Read a part's or a commit's record; None if it is not there.

    Raises:
        StateError: it is damaged, or was written from other inputs or settings.
    """
    try:
        data = json.loads(path.read_bytes())
        found = str(data["fingerprint"])
        if found == fingerprint:
            commits = tuple(Commit.from_json(commit) for commit in data["steps"])
            return PartRecord(int(data["part"]), found, commits)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise StateError(f"{path}: damaged commit record ({error}): run with --overwrite") from None
    raise StateError(
        f"{path}: was written from other inputs or settings: run with --overwrite to start anew"
    )


def read_committed(path: Path, fingerprint: str, directory: Path) -> PartRecord | None:
    """Read a record whose files stand in `directory` as it says, or None.

    A record that vouches for a file that is gone or cut is removed, behind those of its files that
    are cut: its part is made anew, and nothing stands in the way.

    Raises:
        StateError: see `read_record`.
    """
    record = read_record(path, fingerprint)
    if record is None:
        return None
    wrong = [entry for entry in record.files() if not is_intact_file(entry, directory)]
    if not wrong:
        return record
    for entry in wrong:
        remove_truncated(entry.name, directory)
    path.unlink()
    return None


def is_intact_file(entry: FileEntry, directory: Path) -> bool:
    """Return whether a file is there as itself, not as a link, with its size."""
    try:
        stat = (directory / entry.name).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return S_ISREG(stat.st_mode) and stat.st_size == entry.n_bytes


def remove_truncated(name: str, directory: Path) -> None:
    """Remove a file of a dataset, whose size is wrong; what else stands there stays."""
    path = directory / name
    if DATASET_FILE.fullmatch(name) and not path.is_symlink() and path.is_file():
        path.unlink()
