"""Documents longer than the context, estimated from the histogram of lengths."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tokmill.bill.dataset_size import DatasetSize


@dataclass(frozen=True, slots=True)
class LongDocuments:
    """Number and tokens of the documents that are longer than the context.

    `documents` is an estimate between `least` and `most`, because one class of lengths may include
    the context. Lengths inside a class are assumed to be log-uniform. `share` is that of all
    documents, `tokens` all tokens of the long ones, `tokens_beyond` those after the context.
    """

    context: int
    least: int
    documents: int
    most: int
    share: float
    tokens: int
    tokens_beyond: int


def long_documents(dataset: DatasetSize, context: int) -> LongDocuments:
    """Return number and tokens of the documents longer than `context` tokens.

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
    """Return the share of a class, of log-uniform lengths, that is longer than the context."""
    return math.log((high + 1) / max(low, context + 1)) / math.log((high + 1) / low)


def _log_mean(low: int, high: int) -> float:
    """Return the mean of log-uniform lengths from `low` to `high`."""
    return float(low) if high <= low else (high - low) / math.log(high / low)
