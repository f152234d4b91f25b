"""Which source each document of a split is from: the names, and a number for each document."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tokmill.dataset.origins import OriginFinder
from tokmill.errors import UsageError
from tokmill.urls import shown_place
from tokmill.words import printable

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.dataset.documents import Documents
    from tokmill.dataset.manifest import Manifest

_MOST_SHOWN = 8


class DocumentNames:
    """The sources of a split's documents, by number.

    A source is what the run or the mix named; a file, where nothing is named; the whole dataset,
    where it does not say which records its documents came from (imported tokens).

    Memory: once a shard is asked for, a byte for each of its documents; two or four where there are
    more than 256 or 65,536 sources.

    Attributes:
        names: of the sources, by their number.
    """

    def __init__(self, directory: Path, manifest: Manifest, documents: Documents) -> None:
        self._directory, self._documents = directory, documents
        self.has_origins = all(entry.first_slice is not None for entry in documents.entries)
        labels = [file.name or file.path for file in manifest.input_files]
        if not self.has_origins or not labels:
            self.has_origins, labels = False, [directory.name]
        self.names = tuple(dict.fromkeys(labels))
        numbers = {name: number for number, name in enumerate(self.names)}
        self._number_of_row = np.array([numbers[label] for label in labels])
        self._dtype = np.min_scalar_type(len(self.names) - 1)
        self._finder = OriginFinder(directory, manifest)
        self._of_shards: dict[int, npt.NDArray[np.unsignedinteger]] = {}

    def number(self, name: str) -> int:
        """Return the number of a source; raises `UsageError` if no document is from it."""
        if not self.has_origins:
            raise UsageError(
                f"{shown_place(self._directory)}: "
                "source: the dataset does not say which source its documents "
                "came from (imported tokens have no .origin files)"
            )
        if name not in self.names:
            shown = ", ".join(map(printable, self.names[:_MOST_SHOWN]))
            more = ", …" if len(self.names) > _MOST_SHOWN else ""
            raise UsageError(
                f"{shown_place(self._directory)}: "
                f"source: expected one of {shown}{more}; found {name!r}"
            )
        return self.names.index(name)

    def of_documents(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the number of the source of each document, by its number in the split: (n,)."""
        found = np.zeros(len(numbers), np.int64)
        if not self.has_origins:
            return found
        shards = np.searchsorted(self._documents.stops, numbers, side="right")
        for shard in np.unique(shards).tolist():
            own = shards == shard
            found[own] = self.of_shard(shard)[numbers[own] - self._documents.firsts[shard]]
        return found

    def of_shard(self, shard: int) -> npt.NDArray[np.unsignedinteger]:
        """Return the number of the source of each document of a shard that has origins: (n,)."""
        if shard not in self._of_shards:
            entry = self._documents.entries[shard]
            of_rows = self._finder.sources(entry)
            self._of_shards[shard] = self._number_of_row[of_rows].astype(self._dtype)
        return self._of_shards[shard]
