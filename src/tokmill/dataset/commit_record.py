"""Commit records, `parts/*.json`: the files and counts of a commit and of a part.

Canonical JSON, equal for equal bytes. The key of a part's commits is "steps".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from stat import S_ISREG
from typing import TYPE_CHECKING, Any

from tokmill.dataset.canonical import canonical_json
from tokmill.dataset.checksum import FileEntry
from tokmill.dataset.counts import Counts
from tokmill.dataset.layout import DATASET_FILE, FORMAT_VERSION
from tokmill.dataset.writer import ShardEntry
from tokmill.errors import StateError
from tokmill.storage import remove_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The place of the first record of the next commit: slice of the part, and place inside it."""

    slice: int
    line: int
    byte_offset: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of a part: a shard of each split with documents, the rejects, the counts.

    `counts`: by slice of the part. `length_histogram[i]`: documents of 2^i to 2^(i+1) - 1 tokens,
    eos included. `next`: None in the last commit of a part.
    """

    shards: tuple[ShardEntry, ...]
    rejects: FileEntry | None
    counts: Mapping[int, Counts]
    length_histogram: tuple[int, ...]
    next: ResumePoint | None

    def files(self) -> Iterator[FileEntry]:
        """Yield the files of the shards, then of the rejects."""
        for shard in self.shards:
            yield from shard.files
        if self.rejects is not None:
            yield self.rejects

    def as_json(self) -> dict[str, Any]:
        """Return the commit as plain values."""
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
            "next": None if self.next is None else asdict(self.next),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Commit:
        """Return the commit of a value from `as_json`."""
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
        """Return the record as the bytes of its file."""
        return canonical_json(
            {
                "format_version": FORMAT_VERSION,
                "part": self.part,
                "fingerprint": self.fingerprint,
                "steps": [commit.as_json() for commit in self.commits],
            }
        )

    def files(self) -> Iterator[FileEntry]:
        """Yield the files of all commits, in the order of the dataset."""
        for commit in self.commits:
            yield from commit.files()

    def counts(self) -> Counts:
        """Return the sum of the counts of all commits."""
        total = Counts()
        for commit in self.commits:
            for counts in commit.counts.values():
                total.add(counts)
        return total


def read_record(path: Path, fingerprint: str) -> PartRecord | None:
    """Read the record of a part or a commit; None if it is not there.

    Raises:
        StateError: it is damaged, or was written from other inputs or settings.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return parse_record(data, fingerprint, path)


def parse_record(content: bytes, fingerprint: str, where: Path | str) -> PartRecord:
    """Return the record with this content; raises `StateError` as `read_record` does."""
    try:
        data = json.loads(content)
        found = str(data["fingerprint"])
        if found == fingerprint:
            commits = tuple(Commit.from_json(commit) for commit in data["steps"])
            return PartRecord(int(data["part"]), found, commits)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StateError(
            f"{where}: damaged commit record ({error}): run with --overwrite"
        ) from None
    raise StateError(
        f"{where}: was written from other inputs or settings: run with --overwrite to start again"
    )


def read_committed(path: Path, fingerprint: str, directory: Path) -> PartRecord | None:
    """Read a record all of whose files are in `directory` with their sizes; else None.

    A record with a missing or truncated file is removed, after its truncated files, so that the
    part can be written again.

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
    remove_file(path)
    return None


def is_intact_file(entry: FileEntry, directory: Path) -> bool:
    """Return whether a file, not a link, is there with its size."""
    return size_of_file(directory, entry.name) == entry.n_bytes


def size_of_file(directory: Path, name: str) -> int | None:
    """Return the bytes of a file; None if nothing is there, or a link or a directory."""
    try:
        stat = (directory / name).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return stat.st_size if S_ISREG(stat.st_mode) else None


def remove_truncated(name: str, directory: Path) -> None:
    """Remove a file of a dataset with a wrong size; anything but a file stays."""
    path = directory / name
    if DATASET_FILE.fullmatch(name) and not path.is_symlink() and path.is_file():
        remove_file(path)
