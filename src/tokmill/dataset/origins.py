"""The record that a document of a finished dataset was made from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.layout import ORIGIN
from tokmill.dataset.origin_file import as_places, numbers_of, read_groups
from tokmill.errors import UsageError, VerifyError
from tokmill.storage import read_errors
from tokmill.urls import refuse_store
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a document stands, and the record that it was made from.

    Attributes:
        split: `train` or `val`.
        shard: name of its shard, without an ending.
        place: its number in the shard, from 0.
        path: its input file.
        record: the number of its record in the file, from 1: the line in JSON Lines, the row of a
            table, the element of an array. Several samples can have one record.
        byte: the byte of the file at which the record begins, decompressed; -1 for rows of Parquet
            and Arrow, which have none.
    """

    split: str
    shard: str
    place: int
    path: str
    record: int
    byte: int

    def __str__(self) -> str:
        """Return the path, the record and the byte in words."""
        byte = f", byte {self.byte:,}" if self.byte >= 0 else ""
        return f"{self.path}, record {self.record:,}{byte}"


class OriginFinder:
    """Finds the origin of documents in the `.origin` of their shard and the manifest."""

    def __init__(self, directory: Path, manifest: Mapping[str, Any]) -> None:
        self._directory = directory
        self._sources = manifest.get("sources", ())
        self._entries = {entry["name"]: entry for entry in manifest["shards"]}

    def find(self, shard: str, place: int) -> Origin:
        """Return the origin of document `place` of a shard.

        Raises:
            UsageError: the dataset has no origins.
            VerifyError: the file of origins is missing or damaged.
        """
        entry = self._entries[shard]
        path = self._path(entry)
        with read_errors(path):
            numbers = numbers_of(np.memmap(path, np.uint8, "r"), place)
        slice_index, record, byte = as_places(numbers).ravel().tolist()
        number = entry["first_slice"] + slice_index
        source = int(np.searchsorted(self._stops, number, "right"))
        if slice_index < 0 or source == len(self._stops) or record < 1:
            raise VerifyError(f"{path}: document {place} has no record: see tokmill verify")
        row = self._sources[source]
        slices = row.get("slices", [])
        before = slices[: number - int(self._stops[source]) + len(slices)]
        record += sum(one["records"] for one in before)
        byte += sum(one["bytes"] for one in before)  # of rows without a byte, too
        return Origin(entry["split"], shard, place, row["path"], record, byte)

    def sources(self, entry: Mapping[str, Any]) -> npt.NDArray[np.int64]:
        """Return the source of each document of a shard: (n,) int64; raises as `find`."""
        path = self._path(entry)
        with read_errors(path):
            groups = read_groups(np.memmap(path, np.uint8, "r"))
            slices = np.concatenate([as_places(numbers)[0] for numbers in groups])
        stops = self._stops[:-1]  # whatever is beyond belongs to the last
        found: npt.NDArray[np.int64] = np.searchsorted(
            stops, slices + entry["first_slice"], "right"
        )
        return found

    def may_hold(self, sources: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return which shards can have documents of some sources: those whose part reads them."""
        firsts = np.array([entry.get("first_slice", 0) for entry in self._entries.values()])
        of_parts = np.append(np.unique(firsts), self._stops[-1:])
        stops = of_parts[np.searchsorted(of_parts[:-1], firsts, "right")]
        n_before = np.append(0, np.cumsum(sources))
        low, high = (np.searchsorted(self._stops, one, "right") for one in (firsts, stops - 1))
        return n_before[high + 1] > n_before[low]

    def _path(self, entry: Mapping[str, Any]) -> Path:
        refuse_store(self._directory)
        if "first_slice" not in entry:
            raise UsageError(
                f"{self._directory}: does not say which records its documents came from: a dataset "
                "of imported tokens has no .origin files"
            )
        return self._directory / f"{entry['name']}.{ORIGIN}"

    @cached_property
    def _stops(self) -> npt.NDArray[np.int64]:
        """Return the slices up to the end of each source: (n,) int64."""
        counts = (len(row.get("slices", (0,))) for row in self._sources)
        return np.fromiter(accumulate(counts), np.int64, len(self._sources))


def origins_problem(path: Path, n_documents: int, n_slices: int) -> str:
    """Return a line on what is wrong with a file of origins, or ''; memory is that of a group.

    `n_slices`: of the dataset from the first slice of the shard's part on.
    """
    n_found = 0
    try:
        for numbers in read_groups(np.memmap(path, np.uint8, "r")):
            slices, records, offsets = as_places(numbers)
            least = min(slices.min(), records.min() - 1, offsets.min() + 1)
            if least < 0 or slices.max() >= n_slices:
                return "a document has no record of the sources"
            n_found += len(numbers)
    except ValueError as error:
        return str(error)
    problem = f"{plural(n_found, 'origin')}, expected {plural(n_documents, 'document')}"
    return problem if n_found != n_documents else ""
