"""Lengths of documents, and how much of them is longer than a context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.statistics import CONTEXTS, N_BINS, Lengths, read_lengths
from tokmill.errors import TokmillError
from tokmill.page.report.charts import Chart, Marks, Row, bars, columns
from tokmill.page.report.section import Section, note

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MOST_TICKS = 16


def lengths_section(directory: Path, manifest: Mapping[str, Any]) -> Section:
    """Return the section; without readable indices, it has the histogram of the manifest."""
    things = "samples" if manifest.get("kind") == "sft" else "documents"
    totals = manifest["totals"]
    try:
        found = read_lengths(directory, manifest)
    except TokmillError as error:
        found = _of_manifest(manifest)
        html = note(f"The exact lengths are not known: {error}")
        html += _histogram(found, things, is_exact=False)
        return Section("lengths", "Lengths", html, _data(found, is_exact=False))
    lead = note(f"{found.mean:,.0f} tokens on average; the longest has {found.longest:,}.")
    html = lead + _histogram(found, things, is_exact=True) + _contexts(found, totals, things)
    return Section("lengths", "Lengths", html, _data(found, is_exact=True))


def _of_manifest(manifest: Mapping[str, Any]) -> Lengths:
    """Return the lengths of the manifest's histogram, each as the least of its column."""
    counts = np.array(manifest["length_histogram"][:N_BINS], np.int64)
    return Lengths(1 << np.arange(len(counts)), counts)


def _data(found: Lengths, *, is_exact: bool) -> dict[str, Any]:
    """Return documents by length as the manifest has them, and what is exact beside them."""
    stop = int(np.flatnonzero(found.documents)[-1]) + 1 if found.documents.any() else 0
    data: dict[str, Any] = {"length_histogram": found.documents[:stop].tolist()}
    if is_exact:
        data |= {
            "tokens_by_length": found.tokens[:stop].tolist(),
            "longest": found.longest,
            "contexts": list(CONTEXTS),
            "documents_longer": list(map(found.longer, CONTEXTS)),
            "tokens_beyond": list(map(found.beyond, CONTEXTS)),
        }
    return data


def _histogram(found: Lengths, things: str, *, is_exact: bool) -> str:
    filled = np.flatnonzero(found.documents)
    if not len(filled):
        return ""
    first, stop = int(filled[0]), int(filled[-1]) + 1
    names = (things, "tokens") if is_exact else (things,)
    amounts = (found.documents, found.tokens)[: len(names)]
    chart = Chart(
        "lengths-histogram",
        f"{things.capitalize()} by length in tokens",
        f"Share of the {things}, and of the tokens in them, for each length from a power of two "
        "to the next. Dashed lines are context sizes: columns on their right are longer.",
        names,
        key="length in tokens",
    )
    every = 1 if stop - first <= _MOST_TICKS else 2
    rows = [
        Row(
            f"{1 << i:,} to {(2 << i) - 1:,}",
            tuple(int(amount[i]) for amount in amounts),
            _short(1 << i) if (i - first) % every == 0 else "",
        )
        for i in range(first, stop)
    ]
    largest = max(float(amount.max()) / (int(amount.sum()) or 1) for amount in amounts)
    bins = (context.bit_length() - 1 - first for context in CONTEXTS)
    marks = Marks("context sizes", tuple(i for i in bins if 0 < i < stop - first))
    full = [largest * int(amount.sum()) for amount in amounts]
    return columns(chart, rows, full=full, marks=marks)


def _short(n: int) -> str:
    """Return a power of two as people name context sizes: `512`, `4k`, `1M`."""
    if n < 1 << 10:
        return str(n)
    return f"{n >> 10}k" if n < 1 << 20 else f"{n >> 20}M"


def _contexts(found: Lengths, totals: Mapping[str, Any], things: str) -> str:
    chart = Chart(
        "lengths-contexts",
        "Longer than a context",
        f"For each context size, the share of {things} that are longer, and below it the share of "
        "all tokens that stand after so many in their document.",
        (f"{things} that are longer", "tokens past the context"),
        key="context",
    )
    n_documents, n_tokens = totals["documents"] or 1, totals["tokens"] or 1
    n_passed = sum(1 for context in CONTEXTS if found.longer(context))
    shown = CONTEXTS[: n_passed + 1]  # nothing is longer than those after the first without any
    rows = [
        Row(
            f"{context:,} tokens",
            (found.longer(context), found.beyond(context)),
            f"{_percent(found.longer(context) / n_documents)} longer, "
            f"{_percent(found.beyond(context) / n_tokens)} past it"
            if found.longer(context)
            else "none longer",
        )
        for context in shown
    ]
    return bars(chart, rows, full=(n_documents, n_tokens))


def _percent(share: float) -> str:
    """Return a share in percent, with two decimals where one would show 0.0%."""
    return f"{share:.2%}" if 0 < share < 0.0005 else f"{share:.1%}"
