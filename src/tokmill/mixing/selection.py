"""Which documents a mix takes of each source, and how often: whole epochs, and a seeded part.

A document has a rank in its input: the place that the loader's bijection gives its number, with the
seed of the mix and the number of the source as its stream. The part of an epoch is the documents
whose rank is below a limit, which is searched in two passes over the lengths: sums by ranges of
ranks, then the ranks of one range. So the documents are an even sample, the last one that still
fits ends the part, and memory does not grow with the dataset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.sidecars import open_index
from tokmill.errors import RecordError, UsageError
from tokmill.loader.order import shuffled
from tokmill.mixing.batch import read_chunk, rows_of, trained
from tokmill.mixing.settings import TRAINED
from tokmill.mixing.survey import KEPT
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from tokmill.mixing.inputs import Chunk, Inputs
    from tokmill.mixing.settings import MixSettings

MOST_EPOCHS = 10_000
"""How often a source may be repeated: a list has each repeat of each chunk."""

_RANGES = 1 << 20
"""Ranges of ranks of all sources together."""

_STREAM = 1 << 32
"""Streams from here on are ranks: the order of the output has stream 0."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What is taken of the train split of a source.

    Attributes:
        name: of the source, as it was asked for.
        available: its tokens, without documents that are left out.
        wanted: tokens that its share or its epochs ask for.
        epochs: whole epochs.
        limit: ranks below it are taken once more.
        tokens: tokens taken.
        documents: documents taken, with repeats.
    """

    name: str
    available: int
    wanted: int
    epochs: int
    limit: int
    tokens: int
    documents: int

    def as_json(self) -> dict[str, Any]:
        """Return the source for the manifest: wanted and got."""
        times = round(self.tokens / self.available, 6) if self.available else 0
        rest = {name: getattr(self, name) for name in ("wanted", "tokens", "documents")}
        return {"name": self.name, "available": self.available, **rest, "epochs": times}


class Selection:
    """The documents of a mix, chunk by chunk.

    `reasons`: of all documents, None if nobody looked. `taken`: what `choose` has returned.
    """

    def __init__(
        self,
        inputs: Inputs,
        settings: MixSettings,
        reasons: npt.NDArray[np.uint8] | None,
        taken: Sequence[Taken] = (),
    ) -> None:
        self._inputs, self._settings = inputs, settings
        self.reasons, self._taken = reasons, tuple(taken)

    def times(self, chunk: Chunk) -> npt.NDArray[np.int64]:
        """Return how often each document of a chunk is written: (n,) int64."""
        sources = self._sources(chunk)
        if chunk.split == "val":
            return (sources >= 0).astype(np.int64)
        epochs = np.array([taken.epochs for taken in self._taken] + [0])
        limits = np.array([taken.limit for taken in self._taken] + [0])
        if not limits.any():
            return epochs[sources]
        return np.asarray(epochs[sources] + (self._ranks(chunk, sources) < limits[sources]))

    def amounts(
        self, chunk: Chunk, *, has_ranks: bool
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return source, tokens that count and rank of the documents that can be taken: (n,)."""
        sources = self._sources(chunk)
        is_trained = self._settings.count == TRAINED
        tokens = trained(read_chunk(self._inputs, chunk)) if is_trained else self.lengths(chunk)
        ranks = self._ranks(chunk, sources) if has_ranks else np.zeros(len(chunk), np.int64)
        here = np.flatnonzero(sources >= 0)
        return sources[here], tokens[here], ranks[here]

    def lengths(self, chunk: Chunk) -> npt.NDArray[np.int64]:
        """Return the tokens of every document of a chunk: (n,) int64."""
        directory = self._inputs.datasets[chunk.input].directory
        lengths, _ = open_index(directory / f"{chunk.entry.name}.idx", chunk.entry.documents)
        of_chunk: npt.NDArray[np.int64] = lengths[chunk.start : chunk.stop].astype(np.int64)
        return of_chunk

    def _sources(self, chunk: Chunk) -> npt.NDArray[np.int64]:
        """Return the request of each document; -1: it is left out."""
        inputs, dataset = self._inputs, self._inputs.datasets[chunk.input]
        rows = slice(dataset.first_row, dataset.first_row + len(dataset.manifest.sources))
        sources = inputs.request_of_row[rows]
        is_one = (sources == sources[0]).all()  # then origins need not be read
        sources = (
            np.full(len(chunk), sources[0])
            if is_one
            else inputs.request_of_row[rows_of(inputs, chunk)]
        )
        if self.reasons is not None:
            sources[self.reasons[chunk.numbers] != KEPT] = -1
        return sources

    def _ranks(self, chunk: Chunk, sources: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the rank of each document in its input, of the stream of its source."""
        n = self._inputs.datasets[chunk.input].n_documents(chunk.split)
        numbers = np.arange(chunk.in_input, chunk.in_input + len(chunk))
        ranks = np.zeros(len(chunk), np.int64)
        for source in np.unique(sources[sources >= 0]).tolist():
            here = sources == source
            stream, seed = _STREAM + source, self._settings.seed
            ranks[here] = shuffled(numbers[here], n, seed=seed, stream=stream)
        return ranks


def everything(inputs: Inputs) -> list[Taken]:
    """Return that all documents of all inputs are taken once."""
    taken = []
    for request in inputs.requests:
        dataset = inputs.datasets[inputs.input_of(request)]
        n_tokens, n_documents = dataset.n_tokens("train"), dataset.n_documents("train")
        taken.append(Taken(request.name, n_tokens, n_tokens, 1, 0, n_tokens, n_documents))
    return taken


def choose(
    inputs: Inputs,
    settings: MixSettings,
    chunks: Sequence[Chunk],
    selection: Selection,
    warn: Callable[[str], None],
) -> list[Taken]:
    """Return what is taken of each source; reads the lengths of all documents at most three times.

    Raises:
        RecordError: a source has no document left for its share.
        UsageError: a source would be repeated too often.
    """
    of_train = [chunk for chunk in chunks if chunk.split == "train"]
    n = len(inputs.requests)
    available, documents = np.zeros((2, n), np.int64)
    for chunk in of_train:
        sources, tokens, _ = selection.amounts(chunk, has_ranks=False)
        np.add.at(available, sources, tokens)
        documents += np.bincount(sources, minlength=n)
    for request, has_tokens in zip(inputs.requests, available.tolist(), strict=True):
        if not has_tokens and request.share is not None:
            raise RecordError(f"{request.name}: no document of train is left for its share")
    wanted = _wanted(inputs, settings, available.tolist())
    for request, most, asked in zip(
        inputs.requests, (MOST_EPOCHS * available).tolist(), wanted, strict=True
    ):
        if asked > most:
            raise UsageError(
                f"{request.name}: its tokens would be written more than {MOST_EPOCHS:,} times: ask "
                "for less of it"
            )
    epochs, rest = np.divmod(np.array(wanted), np.maximum(available, 1))
    limits, part_tokens, part_documents = _limits(selection, of_train, inputs, rest)
    n_tokens = epochs * available + part_tokens
    n_documents = epochs * documents + part_documents
    columns = np.stack([available, wanted, epochs, limits, n_tokens, n_documents], axis=1)
    taken = [Taken(r.name, *row) for r, row in zip(inputs.requests, columns.tolist(), strict=True)]
    for request, own in zip(inputs.requests, taken, strict=True):
        if request.share is not None and own.wanted > own.available:
            warn(
                f"{own.name}: has {plural(own.available, 'token')}, its share is {own.wanted:,}: "
                f"its documents are written {own.wanted / own.available:.2f} times"
            )
    return taken


def _wanted(inputs: Inputs, settings: MixSettings, available: list[int]) -> list[int]:
    """Return the tokens that are asked of each source: its epochs, or its share of the budget."""
    requests = inputs.requests
    if requests[0].share is None:
        pairs = zip(requests, available, strict=True)
        return [int((request.epochs or 1) * n) for request, n in pairs]
    total = sum(request.share or 0 for request in requests)
    shares = [(request.share or 0) / total for request in requests]
    enough = min(n / share for n, share in zip(available, shares, strict=True))
    return [int(share * (settings.tokens or enough)) for share in shares]


def _limits(
    selection: Selection, chunks: Sequence[Chunk], inputs: Inputs, rest: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the limit of each source's ranks, and the tokens and documents below it: (3, n).

    `rest`: (n,) int64, the tokens that the documents below each limit may have.
    """
    n = len(rest)
    limits = np.zeros((3, n), np.int64)
    if not rest.any():
        return limits
    sizes = [inputs.datasets[inputs.input_of(r)].n_documents("train") for r in inputs.requests]
    n_ranges = max(1, _RANGES // n)
    widths = np.array([max(1, -(-size // n_ranges)) for size in sizes])
    sums = np.zeros((2, n, n_ranges), np.int64)
    for chunk in chunks:
        sources, tokens, ranks = selection.amounts(chunk, has_ranks=True)
        np.add.at(sums[0], (sources, ranks // widths[sources]), tokens)
        np.add.at(sums[1], (sources, ranks // widths[sources]), 1)
    ends = np.cumsum(sums, axis=2)
    last = np.array([np.searchsorted(ends[0, i], rest[i], "right") for i in range(n)])
    inside: list[list[npt.NDArray[np.int64]]] = [[np.zeros((2, 0), np.int64)] for _ in range(n)]
    for chunk in chunks:
        sources, tokens, ranks = selection.amounts(chunk, has_ranks=True)
        here = ranks // widths[sources] == last[sources]
        for i in np.unique(sources[here]).tolist():
            own = here & (sources == i)
            inside[i].append(np.stack([ranks[own], tokens[own]]))
    for i in np.flatnonzero(rest).tolist():
        ranks, tokens = np.concatenate(inside[i], axis=1)
        order = np.argsort(ranks)
        before, n_before = ends[:, i, last[i]] - sums[:, i, last[i]]
        fitting = before + np.cumsum(tokens[order]) <= rest[i]
        k = int(fitting.sum())
        limits[:, i] = ranks[order[k]], before + tokens[order[:k]].sum(), n_before + k
    return limits
