"""Figures as text: Markdown tables, aligned so that a terminal shows them well too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.contenders import FIRST, JSONL, PARQUET, SLOW, START
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
                spread(Spread.of(timing.start_s for timing in values)) if values[0].start_s else "",
                spread(Spread.of(bytes_per_s(timing, own_clock=True) / 1e6 for timing in values)),
                _tokens(values[0], next(iter(ours.values()))) if ours else "",
            ]
        )
    head = ["contender", "text, MB", "seconds", "MB/s", "start-up, s", "without, MB/s", "tokens"]
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
    again = found[START].values()
    first = found[START + FIRST][0].seconds
    return (
        f"1 MB, command to committed shards: {spread(Spread.of(t.seconds for t in again))} s, "
        f"start-up {spread(Spread.of(t.start_s for t in again))} s of it; "
        f"the very first run {figure(first)} s"
    )


SUMMARY_HEAD = [
    "corpus, tokenizer (family)",
    "text, MB",
    "tokmill, MB/s",
    "start-up, s",
    "without, MB/s",
    *(f"× {name}" for name in SLOW),
    "of best engine: JSONL",
    "Parquet",
    "auto",
]


def summary_row(
    corpus: str, tokenizer: str, family: str, samples: Sequence[Sample], ratios: Sequence[Ratio]
) -> list[str]:
    """Return one line of the table of all corpora and tokenizers, as `SUMMARY_HEAD`."""
    ours = list(by_contender(samples).get(JSONL, {}).values())
    by_label = {ratio.comparison.label: ratio for ratio in ratios}
    wanted = [f"{JSONL} : {name}" for name in SLOW]
    wanted += [f"{name} : best engine alone" for name in (JSONL, PARQUET)]
    wanted += [f"{JSONL} : better engine forced"]
    cells = [spread(by_label[w].spread) if w in by_label else "-" for w in wanted]
    name = f"{corpus}, {tokenizer} ({family})"
    if not ours:
        return [name, *"----", *cells]
    speeds = [
        spread(Spread.of(bytes_per_s(timing) / 1e6 for timing in ours)),
        spread(Spread.of(timing.start_s for timing in ours)),
        spread(Spread.of(bytes_per_s(timing, own_clock=True) / 1e6 for timing in ours)),
    ]
    return [name, f"{ours[0].text_bytes / 1e6:.0f}", *speeds, *cells]


def readme_block(
    rows: Sequence[Sequence[str]],
    stages: Sequence[Sequence[str]],
    machine: Mapping[str, Any],
    others: float,
    pairs: int,
) -> str:
    """Return what stands between the two comments of a page: both tables, and how they were made.

    `stages`: head and rows of the processor's time by stage.
    """
    measured = [i for i in range(len(SUMMARY_HEAD)) if any(row[i] != "-" for row in rows)]
    head, *found = ([row[i] for i in measured] for row in (SUMMARY_HEAD, *rows))
    once = [name for name in SLOW if f"× {name}" in head]
    runs = "one run each"
    if pairs > 1:
        runs = ", ".join(
            [f"median (least-greatest) of {pairs}", *(f"{name} once" for name in once)]
        )
    what = (
        f"`make bench`, {machine['date']}, {machine['cpu']}, {machine['cores']} cores, "
        f"{others:.2f} of them taken by other processes meanwhile; {runs}. "
        "All read the same bytes. tokmill is the whole command, JSONL to committed shards; its "
        "peers are their work alone, without loading. Start-up is everything before the first text "
        "could be encoded; the ratios to the best engine alone are without it on both sides, auto "
        "is held against the better engine forced."
    )
    shares = f"Share of the processor's time:\n\n{table(stages[0], stages[1:])}"
    return f"{BEGIN}\n{table(head, found)}\n\n{what}\n\n{shares}\n{END}"


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
