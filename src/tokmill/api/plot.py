"""A dataset as a figure: how long its documents are, and which sources its tokens come from."""

from __future__ import annotations

from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.errors import UsageError
from tokmill.page.dataset_sections import grouped

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokmill.dataset.manifest import SourceEntry

_MOST_SOURCES = 12


def plot_lengths_and_sources(lengths: npt.NDArray[np.int32], sources: Sequence[SourceEntry]) -> Any:
    """Return a figure of matplotlib with two plots; see `Dataset.plot`.

    `lengths`: (n,) tokens of each document. `sources`: the input files.

    Raises:
        UsageError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("a plot needs matplotlib: pip install matplotlib") from None
    # Not of pyplot, which would keep the figure and choose a window. So no notebook knows how to
    # show it, unless pyplot was imported there.
    figure: Any = Figure(figsize=(10, 3.5), layout="constrained")
    figure._repr_png_ = partial(_as_png, figure)
    by_length, by_source = figure.subplots(1, 2)
    _plot_lengths(by_length, lengths)
    _plot_sources(by_source, sources)
    return figure


def _as_png(figure: Any) -> bytes:
    """Return a figure as a picture, for a notebook."""
    picture = BytesIO()
    figure.savefig(picture, format="png")
    return picture.getvalue()


def _plot_lengths(axes: Any, lengths: npt.NDArray[np.int32]) -> None:
    """Draw the documents by length, in bins of powers of two."""
    last = int(lengths.max()).bit_length() if len(lengths) else 1
    axes.hist(lengths, bins=2.0 ** np.arange(last + 1), edgecolor="white")
    axes.set_xscale("log", base=2)
    axes.set_xlabel("tokens of a document")
    axes.set_ylabel("documents")


def _plot_sources(axes: Any, sources: Sequence[SourceEntry]) -> None:
    """Draw the tokens of the largest sources, and of all others together."""
    rows, _ = grouped(sources)
    largest = sorted(rows, key=lambda row: -row.tokens)
    names = [row.name for row in largest[:_MOST_SOURCES]]
    tokens = [row.tokens for row in largest[:_MOST_SOURCES]]
    if others := largest[_MOST_SOURCES:]:
        names.append(f"{len(others)} others")
        tokens.append(sum(row.tokens for row in others))
    axes.barh(names[::-1], tokens[::-1])
    axes.set_xlabel("tokens")
