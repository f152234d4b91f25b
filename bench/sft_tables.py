"""The rows of a comparison as a table in Markdown."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.sft_values import Row

_HEAD = ("preset", "template", "tokenizer", "data", "samples", "equal", "explained", "refused",
         "different")  # fmt: skip


def markdown(rows: Sequence[Row], *, each: bool) -> str:
    """Return the table: a line for each data set, or one for all of a template and tokenizer."""
    lines = [list(_HEAD), ["---"] * 4 + ["---:"] * 2 + ["---"] + ["---:"] * 2]
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        key = (row.preset, row.template, row.tokenizer, row.data if each else "")
        groups.setdefault(key, []).append(row)
    for (preset, template, tokenizer, data), group in groups.items():
        explained: Counter[str] = Counter()
        for row in group:
            explained += row.explained
        n_sets = sum(row.samples > row.refused for row in group)
        lines.append([
            preset, template, tokenizer, data or f"{n_sets} of {len(group)}",
            str(sum(row.samples for row in group)),
            str(sum(row.equal for row in group)),
            "; ".join(f"{n} × {reason}" for reason, n in explained.most_common()),
            str(sum(row.refused for row in group)),
            str(sum(row.different for row in group)),
        ])  # fmt: skip
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
