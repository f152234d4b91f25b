"""The bill that Python gets: `print` shows its summary, as `tokmill memory` does."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tokmill.bill.full_bill import FullBill
from tokmill.bill.text.summary import asked_parts, summary_rows
from tokmill.words.printable import printable


@dataclass(frozen=True, slots=True, repr=False)
class PrintedBill(FullBill):
    """A bill whose text is its summary in about ten rows."""

    @classmethod
    def of(cls, found: FullBill) -> PrintedBill:
        """Return the same bill with a text."""
        return cls(**{field.name: getattr(found, field.name) for field in fields(found)})

    def __str__(self) -> str:
        """Return the rows of `tokmill memory`."""
        rows = list(summary_rows(self, asked_parts(self.settings)))
        width = max(len(row.label) for row in rows)
        return "\n".join(f"{row.label:<{width}}  {printable(row.text)}" for row in rows)

    def __repr__(self) -> str:
        """Return the name of the model: all amounts would be 45,000 characters."""
        model = "no model" if self.of_model is None else self.of_model.model.name
        return f"<FullBill: {printable(model)}; print() shows it>"
