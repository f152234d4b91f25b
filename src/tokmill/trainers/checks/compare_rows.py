"""Compare the rows that a trainer's reader returned with the documents of the dataset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.errors import VerifyError
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from tokmill.dataset.reader import Shard
    from tokmill.trainers.layouts.rows import Rows
    from tokmill.trainers.source import ExportSource


@dataclass(frozen=True, slots=True)
class Sample:
    """A document, or a piece of one, as the dataset has it.

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
        samples = [_sample(*documents.find(number)) for number in numbers]
        if rows.packs is not None and rows.packs.pieces is not None:
            spans = rows.packs.row_pieces(row)
            samples = [_piece(*pair) for pair in zip(samples, spans, strict=True)]
        yield samples


def _sample(shard: Shard, place: int) -> Sample:
    mask = shard.sample_mask(place)
    ids = shard.document(place).astype(np.int64)
    is_trained = np.ones(len(ids), bool) if mask is None else mask.astype(bool)
    weights = None if shard.weights is None else shard.weights[shard.span(place)]
    return Sample(ids, is_trained, weights)


def _piece(document: Sample, span: slice) -> Sample:
    """Return a piece of a document, whose first token nothing precedes."""
    ids = document.ids[span]
    return Sample(ids, np.arange(len(ids)) > 0)


def check_columns(found: Mapping[str, Any], samples: Sequence[Sample], where: str) -> None:
    """Check the columns of a row, which has samples end to end; raises `VerifyError`."""
    lengths = np.array([len(sample.ids) for sample in samples])
    weights = [sample.weights for sample in samples if sample.weights is not None]
    expected = {
        "input_ids": np.concatenate([sample.ids for sample in samples]),
        "labels": np.concatenate([sample.labels for sample in samples]),
        "attention_mask": np.ones(lengths.sum(), np.int64),
        "seq_lengths": lengths,
        "weights": np.concatenate([np.zeros(0, np.float32), *weights]),
    }
    for name, values in found.items():
        check_equal(values, expected[name], where, name)


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
    are_cut = any(one.packs is not None and one.packs.pieces is not None for one in splits)
    text = f"{plural(n_samples, 'piece' if are_cut else 'document')}, {plural(n_tokens, 'token')}"
    if any(one.packs is not None for one in splits):
        text += f" in {plural(sum(one.n_rows for one in splits), 'pack')}"
    return text
