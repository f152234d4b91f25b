"""Statistics as `print` and a notebook show them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from tokmill.dataset.statistics import Statistics
from tokmill.words import plural, rows_html, rows_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    Rows = Sequence[tuple[str, str]]


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
        from tokmill.page.summary import statistics_rows

        return statistics_rows(self)
