"""Writes docs/formulas.md, and in docs/memory.md the precision schemes and the error of the grid.

    python -m bench.memory_docs

docs/formulas.md is what `tokmill memory --formulas` prints. Of docs/memory.md, the text between
`<!-- NAME: begin -->` and `<!-- NAME: end -->` is replaced. A test compares both with the code.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bench import memory_grid
from tokmill.bill.states.precision import SCHEMES
from tokmill.bill.text.formulas import formulas_page

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PAGE = Path(__file__).parents[1] / "docs" / "memory.md"
FORMULAS = PAGE.with_name("formulas.md")
_BLOCK = re.compile(r"<!-- (\S+): begin -->\n(.*?)<!-- \1: end -->", re.DOTALL)


def main() -> int:
    """Write both pages."""
    FORMULAS.write_text(formulas_page(), encoding="utf-8")
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


def rewritten(page: str) -> str:
    """Return the page with each of its generated blocks as the code has it.

    Raises:
        ValueError: a block is missing, unknown, or there twice.
    """
    found = [match[1] for match in _BLOCK.finditer(page)]
    if sorted(found) != sorted(BLOCKS):
        raise ValueError(f"expected the blocks {', '.join(BLOCKS)}, found {', '.join(found)}")

    def block(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- {name}: begin -->\n{BLOCKS[name]()}\n<!-- {name}: end -->"

    return _BLOCK.sub(block, page)


def _scheme_table() -> str:
    head = ("scheme", "weight", "gradient", "its copy", "master", "Adam", "sum", "computed in")
    rows = [
        (
            f"`{name}`",
            *map(str, (s.weight, s.gradient, s.main_gradient, s.master, 2 * s.moment)),
            str(s.weight + s.gradient + s.main_gradient + s.master + 2 * s.moment),
            {2: "16 bit", 4: "32 bit"}[s.computed],
        )
        for name, s in SCHEMES.items()
    ]
    return _table(head, rows)


def _grid_summary() -> str:
    """Score the stored grid of MemTracker with the formulas as they are."""
    peaks, parts = [], []
    for measured in memory_grid.stored():
        peak, *categories = memory_grid.scores_of(measured)
        peaks.append(abs(peak.error))
        parts += [abs(score.error) for score in categories if score.counted]
    return (
        f"{len(peaks)} training steps on fake tensors: greatest error of a peak {max(peaks):.2%},\n"
        f"of a category that is at least 1% of it {max(parts):.2%}. "
        "`python -m bench.memory_grid --score` prints each."
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out a Markdown table of texts, which are too long to be aligned."""
    lines = (head, ["---"] * len(head), *rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


BLOCKS: Mapping[str, Callable[[], str]] = {
    "schemes": _scheme_table,
    "grid": _grid_summary,
}

if __name__ == "__main__":
    sys.exit(main())
