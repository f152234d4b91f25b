"""Rows of the same length: read as batches, or into arrays that exist already."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.errors import UsageError
from tokmill.loader.segments import cu_seqlens
from tokmill.loader.source import IGNORED, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from tokmill.loader.source import Arrays

EVERY_ROW: slice = slice(None)


class RowSource(Source):
    """Rows of the same length, by number.

    Attributes:
        length: tokens of a row.
        shift: whether labels are the next tokens.
        dtypes: dtypes of the arrays of a row, by name, without `cu_seqlens`.
        has_cu_seqlens: whether rows and batches have `cu_seqlens`.
    """

    length: int
    shift: bool
    dtypes: dict[str, type[np.generic]]
    has_cu_seqlens: bool

    def __getitems__(self, numbers: Sequence[int] | npt.NDArray[np.int64]) -> list[Arrays]:
        """Return several rows, read together: (length,) each; see `batch`."""
        rows = self.empty(len(numbers))
        self.fill(numbers, rows)
        found = [{name: values[i] for name, values in rows.items()} for i in range(len(numbers))]
        return self.measured(found)

    def measured(self, rows: list[Arrays]) -> list[Arrays]:
        """Return rows with their `cu_seqlens`, if the source has them."""
        if self.has_cu_seqlens:
            for row in rows:
                row["cu_seqlens"] = cu_seqlens(row["position_ids"])
        return rows

    def batch(
        self,
        numbers: Sequence[int] | npt.NDArray[np.int64],
        allocate: Callable[..., Any] | None = None,
    ) -> Arrays:
        """Return several rows as one batch: (n, length) each.

        `cu_seqlens` are those of all rows, end to end.

        Args:
            numbers: of the rows.
            allocate: called with shape and dtype to make the arrays, as `numpy.empty` is;
                `tokmill.loader.pinned_empty` makes them in pinned memory.

        Raises:
            IndexError: there is no such row.
            VerifyError: a file of the dataset is missing or damaged.
            StorageError: a file cannot be read, or too many files are open.
        """
        rows = self.empty(len(numbers), allocate)
        self.fill(numbers, rows)
        if self.has_cu_seqlens:
            rows["cu_seqlens"] = cu_seqlens(rows["position_ids"])
        return rows

    def empty(self, n_rows: int, allocate: Callable[..., Any] | None = None) -> Arrays:
        """Return arrays for rows, by name: (n_rows, length) each; see `fill`.

        Args:
            n_rows: the number of rows.
            allocate: see `batch`.
        """
        shape, make = (n_rows, self.length), allocate or np.empty
        return {name: make(shape, dtype) for name, dtype in self.dtypes.items()}

    @abstractmethod
    def fill(
        self,
        numbers: Sequence[int] | npt.NDArray[np.int64],
        into: Arrays,
        rows: slice | npt.NDArray[np.int64] = EVERY_ROW,
    ) -> None:
        """Read rows into arrays that exist already, such as those of `empty`; see `batch`.

        `cu_seqlens` are not among them: `segments.cu_seqlens` computes them from position ids.

        Args:
            numbers: of the rows to read: n.
            into: arrays by name, with the rows to fill.
            rows: which rows of the arrays to fill: n.
        """


def checked_shift(shift: bool) -> bool:
    """Return whether labels are the next tokens; raise `UsageError` for what is no bool."""
    if not isinstance(shift, bool):
        raise UsageError(
            "shift: expected True, if your loop compares logits with labels as they are, or False, "
            f"if the model shifts labels itself, as those of transformers do; found {shift!r}"
        )
    return shift


def labels_of(
    ids: npt.NDArray[np.unsignedinteger], mask: npt.NDArray[np.uint8] | None
) -> npt.NDArray[Any]:
    """Return ids as labels: -100 where the mask is 0; without a mask, the ids."""
    return ids if mask is None else np.where(mask != 0, ids, np.int64(IGNORED))
