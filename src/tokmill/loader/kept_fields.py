"""The kept fields of the documents of rows: a list for each row, and a place in it for each token.

A row holds several documents, and a batch several rows. So a field is a list for each row, with a
value for each document of the row, in their order; `column_ids` say for each token which of them is
its own: `batch["url"][i][batch["column_ids"][i, t]]`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.sidecars import GROUP
from tokmill.errors import UsageError
from tokmill.words import printable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokmill.dataset.documents import Documents
    from tokmill.dataset.manifest import Manifest

COLUMN_IDS = "column_ids"
"""The array that says to which document of its row each token belongs."""

_MOST_GROUPS = 256
"""Groups of 256 documents whose fields stay in memory: some MB of URLs."""

_TAKEN = {
    "cu_seqlens", "document_ids", "input_ids", "is_padding", "labels", "mask", "position_ids",
    "source_ids", "weights", COLUMN_IDS,
}  # fmt: skip
"""Names of the arrays of rows and batches."""


def checked_columns(given: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of fields; raises `UsageError` for what is no list of names."""
    if given is None:
        return ()
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise UsageError(f'columns: expected a list of names, such as ["url"], found {given!r}')
    return tuple(dict.fromkeys(given))


class KeptFields:
    """Fields that were kept of a split's documents, by number.

    Args:
        directory: of the dataset.
        manifest: of the dataset.
        documents: of the split.
        names: of the fields.

    Raises:
        UsageError: the dataset did not keep one of them, or it has the name of an array.
    """

    def __init__(
        self, directory: Path, manifest: Manifest, documents: Documents, names: Sequence[str]
    ) -> None:
        self._documents, self.names = documents, tuple(names)
        for name in names:
            if name not in manifest.keep:
                kept = ", ".join(map(printable, manifest.keep)) or "none"
                raise UsageError(
                    f"{directory}: columns: expected fields that the dataset keeps ({kept}), found "
                    f"{name!r}; keep={name} keeps it when the dataset is made"
                )
            if name in _TAKEN:
                raise UsageError(f"{directory}: columns: {name!r} is the name of an array of rows")
        self._group = lru_cache(_MOST_GROUPS)(self._read_group)

    def _read_group(self, shard: int, group: int) -> list[list[str | None]]:
        """Return the values of each field, of a group of documents of a shard."""
        first = int(self._documents.firsts[shard]) + group * GROUP
        stop = min(first + GROUP, int(self._documents.stops[shard]))
        table = self._documents.metadata(first, stop - first)
        return [table.column(name).to_pylist() for name in self.names]

    def fill(
        self,
        batch: dict[str, npt.NDArray[Any]],
        rows: slice | npt.NDArray[np.int64],
        row_of: npt.NDArray[np.int64],
        documents: npt.NDArray[np.int64],
    ) -> None:
        """Write the lists of rows into a batch.

        Args:
            batch: its arrays of fields hold a list for each row: (n_rows,) objects.
            rows: which rows of the batch to write: n.
            row_of: for each document, which of the n rows it stands in; ascending: (m,) int64.
            documents: their numbers in the split: (m,) int64.
        """
        n_rows = len(batch[self.names[0]])
        numbers = list(range(n_rows)[rows]) if isinstance(rows, slice) else rows.tolist()
        for row in numbers:
            for name in self.names:
                batch[name][row] = []
        shards = np.searchsorted(self._documents.stops, documents, side="right")
        places = documents - self._documents.firsts[shards]
        columns = (row_of, shards, places)
        for own, shard, place in zip(*(one.tolist() for one in columns), strict=True):
            values = self._group(shard, place // GROUP)
            for name, of_name in zip(self.names, values, strict=True):
                batch[name][numbers[own]].append(of_name[place % GROUP])


def places_in_rows(row_of: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the place of each document among those of its row: (m,) int64.

    `row_of`: the row of each document, ascending: (m,) int64.
    """
    return np.arange(len(row_of)) - np.searchsorted(row_of, row_of, side="left")


def as_objects(lists: Sequence[Any] | npt.NDArray[Any]) -> npt.NDArray[np.object_]:
    """Return lists as an array of objects: (n,)."""
    found = np.empty(len(lists), object)
    for number, one in enumerate(lists):
        found[number] = one
    return found


def end_to_end(ids: Sequence[npt.NDArray[np.int64]], n_of: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the `column_ids` of rows that become one row, whose lists stand end to end.

    Args:
        ids: `column_ids` of each row.
        n_of: how many documents each row has.
    """
    n_before = np.cumsum([0, *n_of])
    parts = [np.where(own < 0, own, own + n) for own, n in zip(ids, n_before, strict=False)]
    return np.concatenate(parts)
