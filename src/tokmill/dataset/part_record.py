"""The record of a finished part, `parts/*.json`, and the sums of all records in the manifest.

A record is canonical JSON, equal for equal bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokmill.dataset.checksum import FileEntry, canonical_json, digest_of_chunks
from tokmill.dataset.counts import NOTICED_RECORDS, Counts
from tokmill.dataset.layout import FORMAT_VERSION, PARTS, part_name
from tokmill.dataset.writer import ShardEntry
from tokmill.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
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


@dataclass(slots=True)
class Sums:
    """Sums over the parts so far, and the rows of the manifest.

    `algorithm`: of the checksums. `sources`: rows in the order of the plan, by path and how often
    the file was begun: one that is named twice has two. `files`: all but the plan and the manifest.
    `noticed`: by counter, slice and number in it of the first records behind it.
    `n_slices`: of all parts. Slices are numbered in the order of the plan, so a row of `sources`
    has one, or as many as its key `slices` is long.
    """

    algorithm: str
    totals: Counts = field(default_factory=Counts)
    histogram: Counter[int] = field(default_factory=Counter)
    sources: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    shards: list[dict[str, Any]] = field(default_factory=list)
    files: list[dict[str, Any]] = field(default_factory=list)
    noticed: dict[str, list[list[int]]] = field(default_factory=dict)
    n_slices: int = 0
    _begun: Counter[str] = field(default_factory=Counter)

    def add(self, record: PartRecord, slices: Sequence[tuple[str, bool]]) -> None:
        """Add the record of the next part; `slices`: the path of each, and whether it is a first.

        The first slice of a file begins it.
        """
        keys = []
        for path, is_first in slices:
            self._begun[path] += is_first
            keys.append((path, self._begun[path]))
        self.shards += (shard.as_row(self.n_slices) for shard in record.shards)
        for i, counts in record.counts.items():
            self.totals.add(counts)
            self._add_source(keys[i], counts)
            for name, records in (counts.noticed or {}).items():
                kept = self.noticed.setdefault(name, [])
                kept += [[self.n_slices + i, record] for record in records]
                del kept[NOTICED_RECORDS:]
        self.histogram.update(dict(enumerate(record.length_histogram)))
        self.n_slices += len(slices)
        self.files += (entry.as_json() for entry in record.files())
        digest = digest_of_chunks([record.as_bytes()], self.algorithm)
        self.files.append(digest.entry(f"{PARTS}/{part_name(record.part)}").as_json())

    def _add_source(self, key: tuple[str, int], counts: Counts) -> None:
        """Add the counts of a slice to the row of its file."""
        row = self.sources.get(key)
        length = counts.as_json().get("length")
        total = Counts() if row is None else Counts.from_json(row).mutable()
        total.add(counts)  # to an earlier slice of the same file
        slices = (row or {}).get("slices", []) + ([length] if length else [])
        self.sources[key] = {
            "path": key[0],
            **total.as_json(),
            **({"slices": slices} if slices else {}),
        }

    def length_histogram(self) -> list[int]:
        """Return documents by length: entry i counts 2^i to 2^(i + 1) - 1 tokens."""
        return [self.histogram[i] for i in range(max(self.histogram, default=-1) + 1)]
