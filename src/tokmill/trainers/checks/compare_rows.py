"""Compare the rows that a trainer's reader returned with the documents of the dataset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.errors import VerifyError
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from tokmill.trainers.layouts.rows import Rows
    from tokmill.trainers.source import ExportSource


@dataclass(frozen=True, slots=True)
class Sample:
    """A document as the dataset has it.

    `ids`: (n,) int64. `is_trained`: (n,) bool. `weights`: (n,) float32; None without them.
    """

    ids: npt.NDArray[np.int64]
    is_trained: npt.NDArray[np.bool_]
    weights: npt.NDArray[np.float32] | None = None

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """Return the ids, with -100 where a token is not trained."""
        return np.where(self.is_trained, self.ids, -100)


def expected_rows(source: ExportSource, rows: Rows) -> Iterator[list[Sample]]:
    """Yield the samples of each row, read one by one from the dataset.

    Exports are written by other code, so one bug cannot hide in both.
    """
    documents = source.documents(rows.split)
    for row in range(rows.n_rows):
        numbers: Sequence[int] = [row]
        if rows.packs is not None:
            numbers = rows.packs.row(row).tolist()
        yield [_sample(*documents.find(number)) for number in numbers]


def _sample(shard: Any, place: int) -> Sample:
    mask = shard.sample_mask(place)
    ids = shard.document(place).astype(np.int64)
    is_trained = np.ones(len(ids), bool) if mask is None else mask.astype(bool)
    weights = None if shard.weights is None else shard.weights[shard.span(place)]
    return Sample(ids, is_trained, weights)


def check_equal(found: Any, expected: npt.NDArray[Any], where: str, name: str) -> None:
    """Check that a reader returned the expected (n,) values; raises `VerifyError`."""
    array = np.asarray(found)
    if array.shape != expected.shape:
        raise VerifyError(
            f"{where}: {name}: expected {plural(len(expected), 'value')}, found {len(array):,}"
        )
    if not np.array_equal(array, expected):
        at = int(np.argmax(array != expected))
        raise VerifyError(f"{where}: {name}[{at}]: expected {expected[at]}, found {array[at]}")


def check_count(found: int, rows: Rows, where: str) -> None:
    """Check that a reader has all rows of a split; raises `VerifyError`."""
    if found != rows.n_rows:
        raise VerifyError(f"{where}: expected {plural(rows.n_rows, 'row')}, found {found:,}")


def compared(splits: Sequence[Rows]) -> str:
    """Return how much was compared, as `Checked.compared` says it."""
    n_samples, n_tokens = sum(one.n_samples for one in splits), sum(one.n_tokens for one in splits)
    text = f"{plural(n_samples, 'document')}, {plural(n_tokens, 'token')}"
    if any(one.packs is not None for one in splits):
        text += f" in {plural(sum(one.n_rows for one in splits), 'pack')}"
    return text
