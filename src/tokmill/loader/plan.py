"""What phases will read: tokens by phase and source, passes, what is repeated or never read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokmill.words import count, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.loader.phases import Schedule
    from tokmill.loader.segments import Member


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """A source in all phases.

    Attributes:
        name: of the source.
        tokens: of its rows: a pass over it.
        read: tokens that phases read of it, each time that they do; None: without end.
        epochs: passes that have begun to be read, as a fraction; None: without end.
        repeated: tokens that are read again in a second pass or later; None: without end.
        left_out: tokens of passes that fill no row where a phase with longer rows begins.
        never_read: tokens that stand behind what the first pass comes to; 0 from its end on.
    """

    name: str
    tokens: int
    read: int | None
    epochs: float | None
    repeated: int | None
    left_out: int
    never_read: int


@dataclass(frozen=True, slots=True)
class PhasePlan:
    """A phase.

    Attributes:
        number: of the phase, from 1.
        steps: global batches; None: without end.
        samples: rows; None: without end.
        tokens: of these; None: without end.
        length: tokens of a row.
        batch: rows of a global batch.
        tokens_of: tokens by source; None: without end.
        shares: parts of its samples by source, as they are read; their sum is 1.
    """

    number: int
    steps: int | None
    samples: int | None
    tokens: int | None
    length: int
    batch: int
    tokens_of: dict[str, int | None]
    shares: dict[str, float]


@dataclass(frozen=True, slots=True)
class PhasesPlan:
    """What phases read; as text, two tables.

    Attributes:
        phases: in their order.
        sources: all of them, also those that no phase reads.
    """

    phases: tuple[PhasePlan, ...]
    sources: tuple[SourcePlan, ...]

    def __str__(self) -> str:
        rows = [("phase", "steps", "batch", "length", "source", "share", "tokens")]
        for phase in self.phases:
            shape = (str(phase.number), _n(phase.steps), f"{phase.batch:,}", f"{phase.length:,}")
            for name, tokens in phase.tokens_of.items():
                share = f"{phase.shares[name]:.4g}"
                rows.append((*shape, printable(name), share, _n(tokens)))
                shape = ("", "", "", "")
        of_sources = [("source", "tokens", "read", "epochs", "repeated", "left out", "never read")]
        for one in self.sources:
            epochs = "no end" if one.epochs is None else f"{one.epochs:.2f}"
            of_sources.append(
                (
                    printable(one.name), count(one.tokens), _n(one.read), epochs,
                    _n(one.repeated), count(one.left_out), count(one.never_read),
                )
            )  # fmt: skip
        return "\n".join([*_table(rows), "", *_table(of_sources)])


def _n(n: int | None) -> str:
    return "no end" if n is None else count(n)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of a table; numbers stand right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for heading, width, cell in zip(rows[0], widths, row, strict=True):
            is_text = heading == "source"
            cells.append(cell.ljust(width) if is_text else cell.rjust(width))
        lines.append("  ".join(cells).rstrip())
    return lines


def plan_of(schedule: Schedule) -> PhasesPlan:
    """Return what phases read."""
    name_of = [schedule.names[place] for place in schedule.source_of_rows]
    of_source: dict[str, list[tuple[Member, int]]] = {name: [] for name in schedule.names}
    phases = []
    for segment, record in zip(schedule.segments, schedule.records, strict=True):
        tokens_of, shares = {}, {}
        for member, n in zip(segment.members, segment.blend.counts, strict=True):
            name = name_of[member.rows]
            of_source[name].append((member, record.length))
            tokens_of[name] = _times(member.n_rows, record.length)
            shares[name] = n / segment.blend.period
        n_samples = segment.n_samples
        steps = None if n_samples is None else n_samples // record.batch
        phases.append(
            PhasePlan(
                segment.number + 1, steps, n_samples, _times(n_samples, record.length),
                record.length, record.batch, tokens_of, shares,
            )
        )  # fmt: skip
    sources = [
        _source_plan(name, len(source) * source.length, of_source[name])
        for name, source in zip(schedule.names, schedule.sources, strict=True)
    ]
    return PhasesPlan(tuple(phases), tuple(sources))


def _times(n: int | None, length: int) -> int | None:
    return None if n is None else n * length


def _source_plan(name: str, n_tokens: int, members: Sequence[tuple[Member, int]]) -> SourcePlan:
    """Return the plan of a source of `n_tokens`; `members`: with the length of their rows."""
    left_out = sum(member.left_out for member, _ in members)
    end: int | None = 0  # of what is read of the line
    read = again = 0
    for member, length in members:
        if member.n_rows is None:
            end = None
            break
        start, end = member.first * length, (member.first + member.n_rows) * length
        read += end - start
        again += end - max(start, min(n_tokens, end))
    if end is None:
        return SourcePlan(name, n_tokens, None, None, None, left_out, 0)
    never = max(0, n_tokens - end)
    return SourcePlan(name, n_tokens, read, end / n_tokens, again, left_out, never)
