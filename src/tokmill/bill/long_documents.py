"""Documents of a dataset that are longer than the context, from the histogram of lengths."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tokmill.bill.dataset_size import DatasetSize


@dataclass(frozen=True, slots=True)
class LongDocuments:
    """How many documents are longer than the context, and their tokens.

    `documents` are at least `least` and at most `most`: one class of lengths may lie on both sides
    of the context. `documents` and the tokens take lengths inside a class as log-uniform. `tokens`
    are all tokens of those documents, `tokens_beyond` those after the context's end.
    """

    context: int
    least: int
    documents: int
    most: int
    share: float
    tokens: int
    tokens_beyond: int


def long_documents(dataset: DatasetSize, context: int) -> LongDocuments:
    """Return how many documents are longer than `context` tokens, and the tokens that this touches.

    Class i of the histogram holds lengths from 2^i to 2^(i+1) - 1.
    """
    classes = [(1 << i, (2 << i) - 1, n) for i, n in enumerate(dataset.length_histogram)]
    estimated = sum(n * _log_mean(low, high) for low, high, n in classes)
    longer = [
        (max(low, context + 1), high, n * _share_above(context, low, high))
        for low, high, n in classes
        if high > context
    ]
    documents = sum(n for _, _, n in longer)
    tokens = sum(n * _log_mean(low, high) for low, high, n in longer)
    tokens *= dataset.tokens / estimated if estimated else 0.0
    total = sum(dataset.length_histogram)
    return LongDocuments(
        context=context,
        least=sum(n for low, _, n in classes if low > context),
        documents=round(documents),
        most=sum(n for _, high, n in classes if high > context),
        share=documents / total if total else 0.0,
        tokens=round(tokens),
        tokens_beyond=round(max(0.0, tokens - documents * context)),
    )


def _share_above(context: int, low: int, high: int) -> float:
    """Return the share of log-uniform lengths of a class that are above the context."""
    return math.log((high + 1) / max(low, context + 1)) / math.log((high + 1) / low)


def _log_mean(low: int, high: int) -> float:
    """Return the mean of a log-uniform length between two."""
    return float(low) if high <= low else (high - low) / math.log(high / low)
