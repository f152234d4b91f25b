"""What `manifest.json` says, as typed values; docs/format.md explains its keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from tokmill.dataset.counts import Counts, SliceLength
from tokmill.dataset.typed_json import Count, ObjectReader, Text, from_json, to_json

SliceNumber = Annotated[int, range(1 << 27)]
"""The number of a slice, as an `.origin` can hold it."""

_OWN_KEYS = {"path": Text, "name": Text, "reading": Count, "slices": tuple[SliceLength, ...]}
_read_own = ObjectReader(_OWN_KEYS, frozenset({"name", "reading", "slices"}))


@dataclass(frozen=True, slots=True)
class UnreadTotals:
    """How many input files break off, and how many bytes behind the breaks were not read."""

    files: Count
    text_bytes: Count
    stored_bytes: Count


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """An input file and what became of its records; in JSON its counts stand beside its path.

    `name`: of its source, '' without one. `reading`: how it was read, an index in the readings of
    the manifest; None if all files were read in one way. `slices`: of a file that was cut.
    """

    path: str
    counts: Counts
    name: str = ""
    reading: int | None = None
    slices: tuple[SliceLength, ...] = ()

    @property
    def n_slices(self) -> int:
        """Return the number of its slices: one that was not cut has one."""
        return len(self.slices) or 1

    def as_json(self) -> dict[str, Any]:
        """Return the row of the manifest."""
        own = {
            **({"name": self.name} if self.name else {}),
            **({} if self.reading is None else {"reading": self.reading}),
            **({"slices": to_json(self.slices)} if self.slices else {}),
        }
        return {"path": self.path, **self.counts.as_json(), **own}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SourceEntry:
        """Return the file of a row of the manifest; raises `WrongValue`."""
        return cls(counts=from_json(Counts, data), **_read_own(data))
