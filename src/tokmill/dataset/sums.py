"""Sum up the records of the parts of a dataset: the rows of its manifest."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokmill.dataset.checksum import Digest
from tokmill.dataset.counts import Counts
from tokmill.dataset.layout import PARTS, part_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.dataset.part_record import PartRecord


@dataclass(slots=True)
class Sums:
    """Sums over the parts so far, and the rows of the manifest.

    `algorithm`: of the checksums. `sources`: rows in the order of the plan, by path and how often
    the file was begun: one that is named twice has two. `files`: all but the plan and the manifest.
    `n_slices`: of all parts. Slices are numbered in the order of the plan, so a row of `sources`
    has one, or as many as its key `slices` is long.
    """

    algorithm: str
    totals: Counts = field(default_factory=Counts)
    histogram: Counter[int] = field(default_factory=Counter)
    sources: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    shards: list[dict[str, Any]] = field(default_factory=list)
    files: list[dict[str, Any]] = field(default_factory=list)
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
        self.histogram.update(dict(enumerate(record.length_histogram)))
        self.n_slices += len(slices)
        self.files += (entry.as_json() for entry in record.files())
        digest = Digest(self.algorithm)
        digest.update(record.as_bytes())
        self.files.append(digest.entry(f"{PARTS}/{part_name(record.part)}").as_json())

    def _add_source(self, key: tuple[str, int], counts: Counts) -> None:
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
