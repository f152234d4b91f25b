"""The record of a finished part, `parts/*.json`: its files and counts.

Canonical JSON, equal for equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokmill.dataset.canonical import canonical_json
from tokmill.dataset.checksum import FileEntry
from tokmill.dataset.counts import Counts
from tokmill.dataset.layout import FORMAT_VERSION
from tokmill.dataset.writer import ShardEntry
from tokmill.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class PartRecord:
    """A finished part: its shards, those of train before those of val, its rejects and counts.

    `fingerprint`: of the run's identity and the part's slices. `counts`: by slice of the part.
    `length_histogram[i]`: documents of 2^i to 2^(i+1) - 1 tokens, eos included.
    """

    part: int
    fingerprint: str
    shards: tuple[ShardEntry, ...]
    rejects: FileEntry | None
    counts: Mapping[int, Counts]
    length_histogram: tuple[int, ...]

    def as_bytes(self) -> bytes:
        """Return the record as the bytes of its file."""
        return canonical_json(
            {
                "format_version": FORMAT_VERSION,
                "part": self.part,
                "fingerprint": self.fingerprint,
                "shards": [shard.as_json() for shard in self.shards],
                "rejects": None if self.rejects is None else self.rejects.as_json(),
                "slices": [{"slice": i, **counts.as_json()} for i, counts in self.counts.items()],
                "length_histogram": list(self.length_histogram),
            }
        )

    def files(self) -> Iterator[FileEntry]:
        """Yield the files of the shards, then of the rejects."""
        for shard in self.shards:
            yield from shard.files
        if self.rejects is not None:
            yield self.rejects

    def total(self) -> Counts:
        """Return the sum of the counts of all slices."""
        total = Counts()
        for counts in self.counts.values():
            total.add(counts)
        return total


def parse_record(content: bytes, where: Path | str) -> PartRecord:
    """Return the record with this content.

    Raises:
        StateError: it is damaged.
    """
    try:
        data = json.loads(content)
        rejects = data["rejects"]
        return PartRecord(
            int(data["part"]),
            str(data["fingerprint"]),
            tuple(map(ShardEntry.from_json, data["shards"])),
            None if rejects is None else FileEntry.from_json(rejects),
            {entry["slice"]: Counts.from_json(entry) for entry in data["slices"]},
            tuple(data["length_histogram"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StateError(
            f"{where}: damaged record of a part ({error}): run with --overwrite"
        ) from None
