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
from tokmill.dataset.layout import DATASET_FILE, FORMAT_VERSION, PARTS, SPLITS, part_name
from tokmill.dataset.manifest_shape import COUNTS_OF_SLICE, FILE
from tokmill.dataset.shapes import COUNT, POSITIVE, TEXT, shape_problem_of
from tokmill.dataset.writer import ShardEntry
from tokmill.errors import StateError
from tokmill.settings.schema import CHECKSUMS

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


_SHAPE = {
    "format_version": COUNT,
    "part": COUNT,
    "fingerprint": TEXT,
    "shards": [{"split": set(SPLITS), "documents": POSITIVE, "tokens": POSITIVE, "files": [FILE]}],
    "rejects": (FILE, None),
    "slices": [{"slice": COUNT, **COUNTS_OF_SLICE}],
    "length_histogram": [COUNT],
}


def parse_record(content: bytes, where: Path | str, part: int, n_slices: int) -> PartRecord:
    """Return the record with this content, of part `part`, which has `n_slices` slices.

    Raises:
        StateError: it is damaged.
    """
    try:
        data = json.loads(content)
        problem = shape_problem_of(data, _SHAPE) or _contradiction(data, part, n_slices)
    except (ValueError, RecursionError) as error:
        problem = str(error)
    if problem:
        raise StateError(f"{where}: damaged record of a part ({problem}): run with --overwrite")
    rejects = data["rejects"]
    return PartRecord(
        data["part"],
        data["fingerprint"],
        tuple(map(ShardEntry.from_json, data["shards"])),
        None if rejects is None else FileEntry.from_json(rejects),
        {entry["slice"]: Counts.from_json(entry) for entry in data["slices"]},
        tuple(data["length_histogram"]),
    )


def _contradiction(data: Mapping[str, Any], part: int, n_slices: int) -> str:
    """Return a line on a value of a record that is not one of its part, or ''.

    Files that differ from a record are removed, so it may name those of its own part alone.
    """
    if data["part"] != part:
        return f"part {data['part']}, expected {part}"
    files = [] if data["rejects"] is None else [data["rejects"]]
    for shard in data["shards"]:
        if problem := _shard_problem(shard):
            return problem
        files += shard["files"]
    for entry in files:
        if problem := _file_problem(entry, part):
            return problem
    slices = [entry["slice"] for entry in data["slices"]]
    if len(set(slices)) < len(slices) or max(slices, default=-1) >= n_slices:
        return f"slices {slices[:3]}, expected each of {n_slices} at most once"
    for key in ("documents", "tokens"):
        if sum(shard[key] for shard in data["shards"]) != sum(one[key] for one in data["slices"]):
            return f"the {key} of its shards are not those of its slices"
    return ""


def _shard_problem(shard: Mapping[str, Any]) -> str:
    """Return a line on files of a shard that are not those of one shard of its split, or ''."""
    names = [entry["name"] for entry in shard["files"]]
    stem = names[0].removesuffix(".bin") if names else ""
    if not names or names[0] != f"{stem}.bin" or stem.partition("-")[0] != shard["split"]:
        return "a shard whose first file is no .bin of its split"
    if any(name.partition(".")[0] != stem for name in names):
        return f"{names[0]}: files of another shard"
    return ""


def _file_problem(entry: Mapping[str, Any], part: int) -> str:
    """Return a line on a file that is none of a part, or whose sum is missing, or ''."""
    name = DATASET_FILE.fullmatch(entry["name"])
    number = name and (name["shard"] or name["rejects"])
    if not number or int(number) != part:
        return f"{entry['name']} is no file of part {part}"
    if sum(algorithm in entry for algorithm in CHECKSUMS) != 1:
        return f"{entry['name']}: expected one sum"
    return ""


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
