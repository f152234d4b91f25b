"""The documents of a dataset by number, over all shards; a few shards are mapped at a time."""

from __future__ import annotations

import operator
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.reader import Shard, open_entry
from tokmill.urls import refuse_store, store_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import SupportsIndex

    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans of tokens, and their places in what is read: (n,) int64 each.

    `shards`: number of the shard in the split. `starts`: first token in the shard. `lengths`: in
    tokens. `targets`: place of the first token in the array that is filled.
    """

    shards: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int64]


MOST_OPEN = 32
"""Shards that stay mapped. Each takes two to four descriptors, of which a process has 1,024."""


class Documents:
    """The documents of a split, or of all splits (`split` is ''), numbered from 0.

    A shard is mapped when one of its documents is looked up. Safe to use from several threads.

    Attributes:
        entries: the rows of the shards in the manifest, in the order of the dataset.
        firsts: (n_shards,) int64, documents before each shard.
        stops: (n_shards,) int64, documents up to the end of each shard.
    """

    def __init__(self, directory: Path, manifest: Mapping[str, Any], split: str = "") -> None:
        # Shards are mapped later, wherever we are then.
        self.directory = directory if store_url(directory) else directory.absolute()
        self.entries = [one for one in manifest["shards"] if split in ("", one["split"])]
        counts = np.array([entry["documents"] for entry in self.entries], np.int64)
        self.stops = np.cumsum(counts)
        self.firsts = self.stops - counts
        self._item_bytes = np.dtype(manifest["dtype"]).itemsize
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
        return index, found - int(self.firsts[index])

    def find(self, number: SupportsIndex) -> tuple[Shard, int]:
        """Return the shard of a document, mapped, and the document's number in it.

        Raises:
            IndexError: there is no such document.
            VerifyError: its shard is missing or damaged.
            StorageError: its shard cannot be read, or too many shards are mapped.
        """
        index, place = self.place(number)
        return self.shard(index), place

    def spans(
        self,
        numbers: npt.NDArray[np.int64],
        index: Callable[[int], tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]] | None = None,
    ) -> Spans:
        """Return the spans of documents, end to end.

        Args:
            numbers: (n,), each from 0 and less than the number of documents.
            index: returns lengths in tokens and offsets in bytes of the documents of a shard, (D,)
                each; without it, the shard is mapped.
        """
        index = index or self._mapped_index
        shards = np.searchsorted(self.stops, numbers, side="right")
        places = numbers - self.firsts[shards]
        starts, lengths = np.empty((2, len(numbers)), np.int64)
        for shard in np.unique(shards).tolist():
            here = shards == shard
            of_shard, offsets = index(shard)
            starts[here] = offsets[places[here]] // self._item_bytes
            lengths[here] = of_shard[places[here]]
        return Spans(shards, starts, lengths, np.cumsum(lengths) - lengths)

    def _mapped_index(self, shard: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        found = self.shard(shard)
        return found.lengths, found.offsets

    def shard(self, index: int) -> Shard:
        """Return shard `index` of `entries`, mapped; see `find`."""
        refuse_store(self.directory)
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
