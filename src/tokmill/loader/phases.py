"""Phases of a training: until when which sources are read, in rows of which length."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.dataset.identity import algorithm_of
from tokmill.errors import StateError, UsageError
from tokmill.loader.order import MOST, Blend, period_counts
from tokmill.loader.segments import Member, Segment
from tokmill.loader.source import RowSource, checked_count
from tokmill.settings.declare import parse_quantity
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokmill.loader.block_order import BlockOrder

_UNTIL = re.compile(r"(.*?)\s*\b(samples|tokens)", re.DOTALL)
_MOST_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of a training; what it does not name is as in the phase before.

    Attributes:
        until: where it ends, counted from the start of the training: `40B tokens`, or `10_000
            samples`; rounded up to a whole global batch. None, only for the last one: never.
        shares: of its samples, by the name of the source; not needed for one source.
        length: tokens of a row; divides the length of each source. In the first phase, where it is
            left out: the length of the sources.
        batch: rows of a global batch, of all ranks together; a multiple of the number of ranks.

    Example:
        >>> shares = {"web": 0.9, "code": 0.1}
        >>> tokmill.loader.Phase(until="40B tokens", shares=shares, length=4096, batch=512)
    """

    until: str | None = None
    shares: Mapping[str, Any] | None = None
    length: int | None = None
    batch: int | None = None


class PhaseRecord(NamedTuple):
    """What decides a phase, as a state holds it.

    Attributes:
        samples: in the phase; None: without end.
        length: tokens of a row.
        batch: rows of a global batch.
        sources: the algorithm of the sums of the files, `:`, and a sha256 of sources and shares.
    """

    samples: int | None
    length: int
    batch: int
    sources: str


@dataclass(frozen=True, slots=True)
class Schedule:
    """Phases with their sources, as segments of a sequence.

    Attributes:
        names: of all sources.
        sources: all of them, also those of no phase.
        rows: rows of a source in the length of a phase; `Member.rows` is a place in them.
        source_of_rows: the place in `sources` of each of them.
        segments: a segment for each phase.
        records: what decides each of them.
    """

    names: tuple[str, ...]
    sources: list[RowSource]
    rows: list[RowSource]
    source_of_rows: list[int]
    segments: list[Segment]
    records: list[PhaseRecord]

    def begun(self, key: int) -> list[PhaseRecord]:
        """Return the records of the phases of which samples before `key` are."""
        return [
            record
            for segment, record in zip(self.segments, self.records, strict=True)
            if segment.first < key
        ]

    def check_begun(self, saved: Sequence[Mapping[str, Any]]) -> None:
        """Check that the phases that a state says to have begun are the first ones here.

        Raises:
            StateError: another one has begun, or it has no such form.
        """
        rest = f"phases from {len(saved) + 1} on may be changed or added"
        if len(saved) > len(self.records):
            raise StateError(
                f"state: {plural(len(saved), 'phase')} began, {len(self.records)} here: keep those "
                f"that began; {rest}"
            )
        for number, (found, record) in enumerate(zip(saved, self.records, strict=False), start=1):
            for name, expected in record._asdict().items():
                if found.get(name) != expected:
                    what = "shares, sources or their order" if name == "sources" else name
                    raise StateError(
                        f"phase {number} has begun, and its {what} changed: {found.get(name)} in "
                        f"the state, {expected} here; {rest}"
                    )


def read_phases(path: str | os.PathLike[str]) -> list[Phase]:
    """Read phases from a TOML file: a table `[[phase]]` for each, whose keys are those of `Phase`.

    Raises:
        UsageError: the file is missing, or has other keys.
    """
    from tokmill.settings.load import read_toml

    values = read_toml(Path(path))
    tables = values.get("phase")
    if values.keys() - {"phase"} or not isinstance(tables, list):
        raise UsageError(f"{path}: expected tables [[phase]], found {', '.join(values) or 'none'}")
    known = [field.name for field in fields(Phase)]
    for number, table in enumerate(tables, start=1):
        if not isinstance(table, dict):
            raise UsageError(f"{path}: phase {number}: expected a table [[phase]], found {table!r}")
        for name in table:
            if name not in known:
                raise UsageError(
                    f"{path}: phase {number}: expected {', '.join(known)}; found {name!r}"
                )
    return [Phase(**table) for table in tables]


def schedule(
    sources: Any,
    phases: Any,
    *,
    shuffle: bool | str,
    order_of: Callable[[RowSource], BlockOrder | None],
) -> Schedule:
    """Return phases with their sources, as segments.

    Args:
        sources: windows by name, or windows alone; packs where all phases have their length.
        phases: a list of `Phase`, or the path of a file of them.
        shuffle: whether, or how, sources are read in a seeded order.
        order_of: returns the order of the blocks of a source; None where it has another order.

    Raises:
        UsageError: a phase cannot be: what it names is missing or wrong.
    """
    if isinstance(phases, str | os.PathLike):
        phases = read_phases(phases)
    if not isinstance(phases, list | tuple) or not phases:
        raise UsageError(f"phases: expected a list of Phase, or a TOML file; found {phases!r}")
    making = _Making(_by_name(sources), shuffle, order_of)
    for phase in phases:
        making.add(phase)
    return Schedule(
        tuple(making.sources), list(making.sources.values()), making.rows, making.source_of_rows,
        making.segments, making.records,
    )  # fmt: skip


def _by_name(sources: Any) -> dict[str, RowSource]:
    """Return the sources by name; a single one has the name of its directory."""
    if isinstance(sources, RowSource):
        return {sources.directory.name: sources}
    if not isinstance(sources, Mapping) or not sources:
        raise UsageError(
            f"sources: with phases, expected windows by name, such as {{'web': windows(…)}}; "
            f"found {sources!r}"
        )
    for name, source in sources.items():
        if not isinstance(name, str):
            raise UsageError(f"sources: expected names that are text, found {name!r}")
        if not isinstance(source, RowSource):
            raise UsageError(f"source {name!r}: expected windows or packs, found {source!r}")
    return dict(sources)


def _share(share: Any, name: str, where: str) -> Any:
    """Return a share of a source; raises `UsageError` for what is no number above 0."""
    try:
        period_counts([share])
    except UsageError:
        raise UsageError(
            f"{where}: share of {name!r}: expected a number above 0, found {share!r}"
        ) from None
    return share


class _Making:
    """Phases that become segments, one after the other.

    Attributes:
        sources: by name.
        rows, source_of_rows, segments, records: see `Schedule`.
    """

    def __init__(
        self,
        sources: dict[str, RowSource],
        shuffle: bool | str,
        order_of: Callable[[RowSource], BlockOrder | None],
    ) -> None:
        self.sources, self._shuffle, self._order_of = sources, shuffle, order_of
        self._blocks: dict[str, BlockOrder | None] = {}
        self.rows: list[RowSource] = []
        self.source_of_rows: list[int] = []
        self.segments: list[Segment] = []
        self.records: list[PhaseRecord] = []
        self._places: dict[tuple[str, int], int] = {}  # in `rows`, by source and length
        # Sources that later phases add come behind those that are read already.
        self._streams: dict[str, int] = {}
        self._line: dict[str, int] = {}  # tokens of each source's line that are behind us
        self._n_samples = self._n_tokens = 0
        self._last = Phase()

    def add(self, phase: Phase) -> None:
        """Add the next phase."""
        number = len(self.segments)
        where = f"phase {number + 1}"
        if not isinstance(phase, Phase):
            raise UsageError(f"{where}: expected a Phase, found {phase!r}")
        if number and self._last.until is None:
            raise UsageError(f"phase {number}: only the last phase may have no until")
        given = {one.name: getattr(phase, one.name) for one in fields(Phase)}
        kept = {name: value for name, value in given.items() if value is not None}
        phase = self._last = replace(self._last, **{**kept, "until": phase.until})
        shares = self._shares(phase, where)
        names = sorted(shares, key=lambda name: self._streams[name])
        length = self._length(phase, names, where)
        batch = checked_count(f"{where}: batch", phase.batch)
        n_samples = self._samples(phase.until, length, batch, where)
        blend = Blend([_share(shares[name], name, where) for name in names])
        counts = [None] * len(names) if n_samples is None else blend.counts_before(n_samples)
        members = [
            self._member(name, length, count, where)
            for name, count in zip(names, counts, strict=True)
        ]
        first = self._n_samples
        self.segments.append(Segment(number, first, n_samples, batch, blend, tuple(members)))
        digest = self._digest(names, blend)
        self.records.append(PhaseRecord(n_samples, length, batch, digest))
        self._n_samples += n_samples or 0
        self._n_tokens += (n_samples or 0) * length

    def _shares(self, phase: Phase, where: str) -> dict[str, Any]:
        """Return the shares of a phase, and number the sources that are new."""
        shares = phase.shares
        if shares is None and len(self.sources) == 1:
            shares = dict.fromkeys(self.sources, 1)
        if not isinstance(shares, Mapping) or not shares:
            raise UsageError(
                f"{where}: shares: expected a share for each source that it reads, such as "
                f"{{'web': 0.9, 'code': 0.1}}; found {phase.shares!r}"
            )
        for name in shares:
            if name not in self.sources:
                shown = ", ".join(map(str, list(self.sources)[:_MOST_SHOWN]))
                more = ", …" if len(self.sources) > _MOST_SHOWN else ""
                raise UsageError(
                    f"{where}: shares: expected names of sources, {shown}{more}; found {name!r}"
                )
            self._streams.setdefault(name, len(self._streams))
        return dict(shares)

    def _length(self, phase: Phase, names: list[str], where: str) -> int:
        """Return the length of the rows of a phase."""
        lengths = [self.sources[name].length for name in names]
        if phase.length is None and len({*lengths}) > 1:
            raise UsageError(
                f"{where}: length: expected one, as the lengths of its sources are "
                f"{min(lengths):,} to {max(lengths):,}"
            )
        given = lengths[0] if phase.length is None else phase.length
        return checked_count(f"{where}: length", given)

    def _samples(self, until: str | None, length: int, batch: int, where: str) -> int | None:
        """Return the samples of a phase: whole global batches."""
        if until is None:
            return None
        match = _UNTIL.fullmatch(until.strip()) if isinstance(until, str) else None
        if match is None:
            raise UsageError(
                f"{where}: until: expected tokens or samples, such as '40B tokens', from the start "
                f"of the training; found {until!r}"
            )
        end = parse_quantity(match[1].replace(",", "").replace("_", ""), "count", f"{where}: until")
        before, size = self._n_samples, batch
        if match[2] == "tokens":
            before, size = self._n_tokens, batch * length
        if end <= before:
            raise UsageError(
                f"{where}: until {until}: expected more than the phase before, which ends after "
                f"{plural(before, match[2][:-1])}"
            )
        n_samples = -((end - before) // -size) * batch
        if self._n_tokens + n_samples * length > MOST:
            raise UsageError(f"{where}: until {until}: expected at most 2^62 tokens in all")
        return n_samples

    def _member(self, name: str, length: int, n_rows: int | None, where: str) -> Member:
        """Return a source in a phase, and go on along its line."""
        source, before = self.sources[name], self._line.get(name, 0)
        if (name, length) not in self._places:
            try:
                rows = source.cut(length)
            except UsageError as error:
                raise UsageError(f"{where}: source {name!r}: {error}") from None
            self._places[name, length] = len(self.rows)
            self.rows.append(rows)
            self.source_of_rows.append(list(self.sources).index(name))
        if name not in self._blocks:
            self._blocks[name] = self._order_of(source)
        first = -(before // -length)
        self._line[name] = (first + (n_rows or 0)) * length
        return Member(
            self._places[name, length], self._streams[name], len(source), source.length // length,
            first, n_rows, first * length - before, self._blocks[name],
        )  # fmt: skip

    def _digest(self, names: list[str], blend: Blend) -> str:
        """Return the algorithm of sums, and a sha256 of what decides which sample comes when."""
        sources = [self.sources[name] for name in names]
        streams = [self._streams[name] for name in names]
        made_of = [[one.fingerprint, len(one), one.length] for one in sources]
        decisive = [made_of, streams, blend.counts, self._shuffle]
        algorithms = sorted({algorithm_of(one.identity) for one in sources})
        digest = hashlib.sha256(json.dumps(decisive).encode()).hexdigest()
        return f"{'+'.join(algorithms)}:{digest}"
