"""Runs of text prepared for display: shortened, with white space at trained edges marked."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.tokenizer.decode import TokenRun


@dataclass(frozen=True, slots=True)
class ShownRun:
    """A run of a sample; `opens`, `closes`: a trained span begins or ends with it."""

    run: TokenRun
    opens: bool
    closes: bool

    def parts(self) -> list[list[tuple[str, bool]]]:
        """Return the parts of each text of the run: (text, whether it is edge white space)."""
        text = "".join(self.run.texts)
        lead = len(text) - len(text.lstrip()) if self.opens else 0
        trail = max(lead, len(text.rstrip())) if self.closes else len(text)
        found, start = [], 0
        for piece in self.run.texts:
            cuts = (max(0, lead - start), max(0, trail - start))
            cut = (piece[: cuts[0]], piece[cuts[0] : cuts[1]], piece[cuts[1] :])
            found.append([(part, i != 1) for i, part in enumerate(cut) if part])
            start += len(piece)
        return found


def shown_runs(runs: Sequence[TokenRun], max_chars: int) -> tuple[list[ShownRun], bool]:
    """Return the runs within `max_chars` characters (0: all), and whether text was cut.

    A control token is never cut.
    """
    found: list[ShownRun] = []
    left = max_chars
    for i, run in enumerate(runs):
        before = runs[i - 1].weight if i else 0
        after = runs[i + 1].weight if i + 1 < len(runs) else 0
        opens, closes = (run.is_trained and run.weight != other for other in (before, after))
        n_chars = sum(map(len, run.texts))
        if max_chars and n_chars > left:
            cut = _cut(run, left)
            return [*found, ShownRun(cut, opens, False)] if cut.texts else found, True
        left -= n_chars
        found.append(ShownRun(run, opens, closes))
    return found, False


def _cut(run: TokenRun, n_chars: int) -> TokenRun:
    texts: list[str] = []
    for text in run.texts:
        if len(text) > n_chars:
            texts += [text[:n_chars]] if n_chars and not run.is_control else []
            break
        texts.append(text)
        n_chars -= len(text)
    return dataclasses.replace(run, texts=tuple(texts))
