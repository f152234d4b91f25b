"""The documents of a dataset by number, over all shards; a few shards are mapped at a time."""

from __future__ import annotations

import operator
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.reader import Shard, open_entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import SupportsIndex

    import numpy.typing as npt

MOST_OPEN = 32
"""Shards that stay mapped. Each takes two to four descriptors, of which a process has 1,024."""


class Documents:
    """The documents of a split, or of all splits (`split` is ''), numbered from 0.

    A shard is mapped when one of its documents is looked up. Safe to use from several threads.

    Attributes:
        entries: the rows of the shards in the manifest, in the order of the dataset.
        stops: (n_shards,) int64, documents up to the end of each shard.
    """

    def __init__(self, directory: Path, manifest: Mapping[str, Any], split: str = "") -> None:
        self.directory = directory.absolute()  # shards are mapped later, wherever we are then
        self.entries = [one for one in manifest["shards"] if split in ("", one["split"])]
        self.stops = np.cumsum([entry["documents"] for entry in self.entries], dtype=np.int64)
        self._manifest = dict(manifest)
        self._open: OrderedDict[int, Shard] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of documents."""
        return int(self.stops[-1]) if len(self.stops) else 0

    @property
    def n_tokens(self) -> int:
        """Return the number of tokens, eos included."""
        return sum(entry["tokens"] for entry in self.entries)

    def place(self, number: SupportsIndex) -> tuple[int, int]:
        """Return the index of a document's shard in `entries`, and its number in the shard.

        A negative number counts from the end.

        Raises:
            IndexError: there is no such document.
        """
        wanted, total = operator.index(number), len(self)
        found = wanted + total if wanted < 0 else wanted
        if not 0 <= found < total:
            raise IndexError(f"{self.directory}: no document {wanted}; it holds {total:,}")
        index = int(np.searchsorted(self.stops, found, side="right"))
        return index, found - (int(self.stops[index - 1]) if index else 0)

    def find(self, number: SupportsIndex) -> tuple[Shard, int]:
        """Return the shard of a document, mapped, and the document's number in it.

        Raises:
            IndexError: there is no such document.
            VerifyError: its shard is missing or damaged.
            StorageError: its shard cannot be read, or too many shards are mapped.
        """
        index, place = self.place(number)
        return self.shard(index), place

    def shard(self, index: int) -> Shard:
        """Return shard `index` of `entries`, mapped; see `find`."""
        with self._lock:
            if index not in self._open:
                self._open[index] = open_entry(self.directory, self._manifest, self.entries[index])
                if len(self._open) > MOST_OPEN:
                    self._open.popitem(last=False)
            self._open.move_to_end(index)
            return self._open[index]

    def __iter__(self) -> Iterator[npt.NDArray[np.unsignedinteger]]:
        """Yield the ids of every document, eos included, in order: read-only views."""
        for index in range(len(self.entries)):
            shard = self.shard(index)
            yield from (shard.document(place) for place in range(len(shard.lengths)))

    def close(self) -> None:
        """Unmap all shards; later reads map them again. Arrays that were returned stay readable."""
        with self._lock:
            self._open.clear()
