"""Results as `print` and a notebook show them: statistics, samples, pages."""

from __future__ import annotations

import html
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from tokmill.inspect.statistics import Statistics
from tokmill.words import plural, rows_html, rows_text, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.inspect.samples import Sample

    Rows = Sequence[tuple[str, str]]


class ShownSamples:
    """Some samples of a dataset: coloured by token in a notebook, as text elsewhere."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples = samples

    def __repr__(self) -> str:
        from tokmill.page.notebook import samples_text

        return samples_text(self.samples)

    def _repr_html_(self) -> str:
        from tokmill.page.notebook import samples_html

        return samples_html(self.samples)


class ShownPage:
    """A web page: in a notebook it stands below the cell; `html` is its text."""

    def __init__(self, page: str) -> None:
        self.html = page

    def __repr__(self) -> str:
        return f"<page of {size(len(self.html.encode()))}; a notebook shows it>"

    def _repr_html_(self) -> str:
        # A frame of its own: the style of the page is not that of the notebook.
        page = html.escape(self.html, quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:44em;border:0"></iframe>'


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ShownStatistics(Statistics):
    """Statistics whose text is that of `tokmill stats`, without its tables."""

    @classmethod
    def of(cls, statistics: Statistics) -> ShownStatistics:
        """Return the same statistics with a text."""
        return cls(**{field.name: getattr(statistics, field.name) for field in fields(statistics)})

    def __str__(self) -> str:
        return rows_text(self._rows())

    def __repr__(self) -> str:
        """Return the sums alone: the counts of all ids would be pages."""
        totals = self.totals
        return (
            f"<Statistics: {plural(totals['documents'], 'document')}, "
            f"{plural(totals['tokens'], 'token')}; print() shows them>"
        )

    def _repr_html_(self) -> str:
        return rows_html(self._rows())

    def _rows(self) -> Rows:
        from tokmill.inspect.summary import statistics_rows

        return statistics_rows(self)
