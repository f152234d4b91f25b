"""Figures as text: Markdown tables, aligned so that a terminal shows them well too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.contenders import FIRST, JSONL, SLOW, START, START_GOAL_S
from bench.ratios import EQUAL_WITHIN, Spread, by_contender, bytes_per_s, token_difference

if TYPE_CHECKING:
    from bench.ratios import Ratio
    from bench.values import Sample, Timing

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out a Markdown table; the first column is text, the others are figures."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first = cells[0].ljust(widths[0])
        rest = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
        return f"| {' | '.join([first, *rest])} |"

    rule = f"|{'-' * (widths[0] + 2)}|" + "".join(f"{'-' * (w + 1)}:|" for w in widths[1:])
    return "\n".join([line(head), rule, *map(line, rows)])


def figure(value: float) -> str:
    """Write a figure with three digits or so."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread(found: Spread) -> str:
    """Write `median (least-greatest)`, or the figure alone where there was one pair."""
    if found.least == found.greatest:
        return figure(found.median)
    return f"{figure(found.median)} ({figure(found.least)}-{figure(found.greatest)})"


def throughput_table(samples: Sequence[Sample]) -> str:
    """Return the throughput of every contender for one corpus and tokenizer."""
    found = by_contender(samples)
    ours = found.get(JSONL) or found.get(JSONL + FIRST)
    rows = []
    for name, timings in found.items():
        values = list(timings.values())
        rows.append(
            [
                name,
                f"{values[0].text_bytes / 1e6:.1f}",
                spread(Spread.of(timing.seconds for timing in values)),
                spread(Spread.of(bytes_per_s(timing) / 1e6 for timing in values)),
                spread(Spread.of(bytes_per_s(timing, own_clock=True) / 1e6 for timing in values)),
                _tokens(values[0], next(iter(ours.values()))) if ours else "",
            ]
        )
    head = ["contender", "text, MB", "seconds", "MB/s", "own clock, MB/s", "tokens"]
    return table(head, rows)


def _tokens(timing: Timing, ours: Timing) -> str:
    if timing.text_bytes % ours.text_bytes and ours.text_bytes % timing.text_bytes:
        return "other text"
    difference = token_difference(timing, ours)
    return f"{difference:+.4%}" if difference else "equal"


def ratio_table(ratios: Sequence[Ratio]) -> str:
    """Return the comparisons of one corpus and tokenizer."""
    rows = []
    for ratio in ratios:
        goal = ratio.comparison.goal
        best = f" ({ratio.under})" if len(ratio.comparison.under) > 1 else ""
        rows.append(
            [
                ratio.comparison.label + best,
                spread(ratio.spread),
                "" if goal is None else f">= {goal:g}",
                {None: "", True: "holds", False: "MISSED"}[ratio.holds],
            ]
        )
    return table(["ratio of text per second", "median (least-greatest)", "goal", ""], rows)


def start_line(samples: Sequence[Sample]) -> str:
    """Return how long 1 MB took, from the command to committed shards; '' where it was not run."""
    found = by_contender(samples)
    if START not in found:
        return ""
    again = Spread.of(timing.seconds for timing in found[START].values())
    first = found[START + FIRST][0].seconds
    holds = "holds" if again.median <= START_GOAL_S else "MISSED"
    return (
        f"1 MB, command to committed shards: {spread(again)} s, "
        f"goal <= {START_GOAL_S} s: {holds}; "
        f"the very first run {figure(first)} s"
    )


def summary_row(
    corpus: str, tokenizer: str, family: str, samples: Sequence[Sample], ratios: Sequence[Ratio]
) -> list[str]:
    """Return one line of the README's table."""
    ours = by_contender(samples).get(JSONL)
    by_label = {ratio.comparison.label: ratio for ratio in ratios}
    speed = spread(Spread.of(bytes_per_s(t) / 1e6 for t in ours.values())) if ours else "-"
    size = f"{next(iter(ours.values())).text_bytes / 1e6:.0f}" if ours else "-"
    wanted = [f"{JSONL} : {name}" for name in SLOW] + [f"{JSONL} : best engine alone"]
    cells = [spread(by_label[w].spread) if w in by_label else "-" for w in wanted]
    return [f"{corpus}, {tokenizer} ({family})", size, speed, *cells]


SUMMARY_HEAD = ["corpus, tokenizer (family)", "text, MB", "tokmill, MB/s"] + [
    f"× {name}" for name in [*SLOW, "best engine alone"]
]


def readme_block(
    rows: Sequence[Sequence[str]], machine: Mapping[str, Any], others: float, pairs: int
) -> str:
    """Return what stands between the README's two comments."""
    runs = f"median (least-greatest) of {pairs}" if pairs > 1 else "one run each"
    what = (
        f"`make bench`, {machine['date']}, {machine['cpu']}, {machine['cores']} cores, "
        f"{others:.2f} of them taken by other processes meanwhile; {runs}. tokmill is the whole "
        "command, JSONL to committed shards, its peers their work alone, without loading."
    )
    measured = [i for i in range(len(SUMMARY_HEAD)) if any(row[i] != "-" for row in rows)]
    head, *found = ([row[i] for i in measured] for row in (SUMMARY_HEAD, *rows))
    return f"{BEGIN}\n{table(head, found)}\n\n{what}\n{END}"


def rewrite_readme(path: Path, block: str) -> None:
    """Put a block in the place of the one between the two comments.

    Raises:
        ValueError: the comments are not there, once each, in order.
    """
    text = path.read_text(encoding="utf-8")
    start, stop = text.find(BEGIN), text.find(END)
    if start < 0 or stop < start or text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{path}: expected the lines {BEGIN} and {END} once each")
    path.write_text(text[:start] + block + text[stop + len(END) :], encoding="utf-8")


def same_work(samples: Sequence[Sample], ratio: Ratio) -> bool:
    """Return whether both sides of a ratio gave the same tokens for the same text."""
    found = by_contender(samples)
    over = next(iter(found[ratio.comparison.over].values()))
    under = next(iter(found[ratio.under].values()))
    return abs(token_difference(over, under)) <= EQUAL_WITHIN
