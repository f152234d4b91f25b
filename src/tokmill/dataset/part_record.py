"""The record of a finished part, `parts/*.json`, and the sums of all records in the manifest.

A record is canonical JSON, equal for equal bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tokmill.dataset.checksum import FileEntry, canonical_json, digest_of_chunks
from tokmill.dataset.counts import NOTICED_RECORDS, Counts
from tokmill.dataset.layout import (
    DATASET_FILE,
    FORMAT_VERSION,
    PARTS,
    check_format_version,
    part_name,
)
from tokmill.dataset.manifest import ShardRow, SourceEntry
from tokmill.dataset.typed_json import Count, ObjectReader, Text, from_json, to_json
from tokmill.dataset.writer import ShardEntry
from tokmill.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class SliceCounts:
    """The counts of a slice of a part; `slice`: its number in the part."""

    slice: int
    counts: Counts

    def as_json(self) -> dict[str, Any]:
        """Return the number and the counts as one object."""
        return {"slice": self.slice, **self.counts.as_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SliceCounts:
        """Return the counts of a value from `as_json`; raises `WrongValue`."""
        return cls(_read_slice(data)["slice"], from_json(Counts, data))


_read_slice = ObjectReader({"slice": Count}, frozenset())


@dataclass(frozen=True, slots=True)
class PartRecord:
    """A finished part: its shards, those of train before those of val, its rejects and counts.

    `fingerprint`: of the run's identity and the part's slices.
    `length_histogram[i]`: documents of 2^i to 2^(i+1) - 1 tokens, eos included.
    """

    part: Count
    fingerprint: Text
    shards: tuple[ShardEntry, ...]
    rejects: FileEntry | None
    slices: tuple[SliceCounts, ...]
    length_histogram: tuple[Count, ...]

    def as_bytes(self) -> bytes:
        """Return the record as the bytes of its file."""
        return canonical_json({"format_version": FORMAT_VERSION, **to_json(self)})

    def files(self) -> Iterator[FileEntry]:
        """Yield the files of the shards, then of the rejects."""
        for shard in self.shards:
            yield from shard.files
        if self.rejects is not None:
            yield self.rejects

    def entry(self, algorithm: str) -> FileEntry:
        """Return the entry of the record's own file."""
        digest = digest_of_chunks([self.as_bytes()], algorithm)
        return digest.entry(f"{PARTS}/{part_name(self.part)}")

    def total(self) -> Counts:
        """Return the sum of the counts of all slices."""
        total = Counts()
        for of_slice in self.slices:
            total.add(of_slice.counts)
        return total


def parse_record(content: bytes, where: Path | str, part: int, n_slices: int) -> PartRecord:
    """Return the record with this content, of part `part`, which has `n_slices` slices.

    Raises:
        StateError: it is damaged, or of a newer format.
    """
    try:
        data = json.loads(content)
        if isinstance(data, dict) and isinstance(data.get("format_version"), int):
            check_format_version(data["format_version"], where)
        record = from_json(PartRecord, data)
        problem = _contradiction(record, part, n_slices)
    except (ValueError, RecursionError) as error:
        problem = str(error)
    if problem:
        raise StateError(f"{where}: damaged record of a part ({problem}): run with --overwrite")
    return record


def _contradiction(record: PartRecord, part: int, n_slices: int) -> str:
    """Return a line on a value of a record that is not one of its part, or ''.

    Files that differ from a record are removed, so it may name those of its own part alone.
    """
    if record.part != part:
        return f"part {record.part}, expected {part}"
    for shard in record.shards:
        if problem := _shard_problem(shard):
            return problem
    for entry in record.files():
        if problem := _file_problem(entry, part):
            return problem
    slices = [of_slice.slice for of_slice in record.slices]
    if len(set(slices)) < len(slices) or max(slices, default=-1) >= n_slices:
        return f"slices {slices[:3]}, expected each of {n_slices} at most once"
    total = record.total()
    if sum(shard.documents for shard in record.shards) != total.documents:
        return "the documents of its shards are not those of its slices"
    if sum(shard.tokens for shard in record.shards) != total.tokens:
        return "the tokens of its shards are not those of its slices"
    return ""


def _shard_problem(shard: ShardEntry) -> str:
    """Return a line on files of a shard that are not those of one shard of its split, or ''."""
    names = [entry.name for entry in shard.files]
    stem = names[0].removesuffix(".bin") if names else ""
    if not names or names[0] != f"{stem}.bin" or stem.partition("-")[0] != shard.split:
        return "a shard whose first file is no .bin of its split"
    if any(name.partition(".")[0] != stem for name in names):
        return f"{names[0]}: files of another shard"
    return ""


def _file_problem(entry: FileEntry, part: int) -> str:
    """Return a line on a file that is none of a part, or ''."""
    name = DATASET_FILE.fullmatch(entry.name)
    number = name and (name["shard"] or name["rejects"])
    return "" if number and int(number) == part else f"{entry.name} is no file of part {part}"


@dataclass(slots=True)
class Sums:
    """Sums over the parts so far, and the rows of the manifest.

    `algorithm`: of the checksums. `files`: all but the plan and the manifest.
    `noticed`: by counter, slice and number in it of the first records behind it.
    `n_slices`: of all parts. Slices are numbered in the order of the plan, so an entry of `sources`
    has one, or as many as its `slices` is long.
    """

    algorithm: str
    totals: Counts = field(default_factory=Counts)
    histogram: Counter[int] = field(default_factory=Counter)
    shards: list[ShardRow] = field(default_factory=list)
    files: list[FileEntry] = field(default_factory=list)
    noticed: dict[str, list[list[int]]] = field(default_factory=dict)
    n_slices: int = 0
    _sources: dict[tuple[str, int], SourceEntry] = field(default_factory=dict)
    _begun: Counter[str] = field(default_factory=Counter)

    @property
    def sources(self) -> list[SourceEntry]:
        """Return the input files in the order of the plan; one that is named twice is there twice.

        By its path and how often it was begun.
        """
        return list(self._sources.values())

    def add(self, record: PartRecord, slices: Sequence[tuple[str, bool]]) -> None:
        """Add the record of the next part; `slices`: the path of each, and whether it is a first.

        The first slice of a file begins it.
        """
        keys = []
        for path, is_first in slices:
            self._begun[path] += is_first
            keys.append((path, self._begun[path]))
        self.shards += (shard.as_row(self.n_slices) for shard in record.shards)
        for of_slice in record.slices:
            i, counts = of_slice.slice, of_slice.counts
            self.totals.add(counts)
            self._add_source(keys[i], counts)
            for name, records in (counts.noticed or {}).items():
                kept = self.noticed.setdefault(name, [])
                kept += [[self.n_slices + i, record] for record in records]
                del kept[NOTICED_RECORDS:]
        self.histogram.update(dict(enumerate(record.length_histogram)))
        self.n_slices += len(slices)
        self.files += [*record.files(), record.entry(self.algorithm)]

    def _add_source(self, key: tuple[str, int], counts: Counts) -> None:
        """Add the counts of a slice to those of the earlier slices of its file."""
        source = self._sources.get(key) or SourceEntry(key[0], Counts())
        source.counts.mutable().add(counts)
        source.counts.compacted()  # there may be millions of files
        if counts.length is not None:
            source = replace(source, slices=(*source.slices, counts.length))
        self._sources[key] = source

    def length_histogram(self) -> list[int]:
        """Return documents by length: entry i counts 2^i to 2^(i + 1) - 1 tokens."""
        return [self.histogram[i] for i in range(max(self.histogram, default=-1) + 1)]
