"""Who runs, and what is held against what: the sections of the benchmark, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ENGINES = ("gigatoken", "fastokens")
FEEDINGS = (
    ("serial", 8 << 20),
    ("serial", 0),
    ("parallel", 8 << 20),
    ("parallel", 0),
    ("threads", 8 << 20),
    ("threads", 1 << 20),
)
"""How an engine alone is fed: see `bench.peers.engine`. Each is best for some pair."""
FIRST = ", very first run"
"""Suffix of the name under which a warm contender's first run stands."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One thing to time. `files`: see `Corpus.inputs`. `warm`: run once before the rounds."""

    name: str
    peer: str
    files: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    warm: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """A ratio of throughputs: `over` by the best of `under`, pair by pair.

    `goal`: the least ratio that is asked for, where there is one. `own_clock`: tokmill by its
    manifest's clock, without the interpreter's start.
    """

    section: str
    label: str
    over: str
    under: Sequence[str]
    goal: float | None = None
    own_clock: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A question, its contenders and its comparisons."""

    name: str
    contenders: Sequence[Contender]
    comparisons: Sequence[Comparison]


JSONL, PARQUET = "tokmill", "tokmill, Parquet"
ONE_WORKER, TWO_WORKERS = "tokmill, 1 worker of 1 thread", "tokmill, 2 workers of 1 thread"
START = "tokmill, 1 MB"
SLOW = {"encode_batch": "reference", "datatrove": "datatrove", "plain loop": "loop"}
START_GOAL_S = 1.5


def sections(
    chosen: Sequence[str], peers: Sequence[str], arguments: Sequence[str], input_bytes: int
) -> list[Section]:
    """Return the sections asked for; `arguments` go to every `tokmill pretrain`."""
    makers = {
        "peers": lambda: _peers(peers, arguments),
        "ceiling": lambda: _ceiling(peers, arguments),
        "auto": lambda: _auto(peers, arguments),
        "workers": lambda: _workers(arguments, input_bytes),
        "start": lambda: _start(arguments),
    }
    return [makers[name]() for name in SECTIONS if name in chosen]


SECTIONS = {
    "peers": "tokmill end to end against the reference, datatrove and a plain loop",
    "ceiling": "tokmill end to end against the best engine alone over ready text",
    "auto": "the engine that auto takes against each engine forced",
    "workers": "two worker processes against one",
    "start": "from the command to committed shards for 1 MB, in seconds",
}


def contenders_of(found: Sequence[Section]) -> list[Contender]:
    """Return every contender once, in the order in which a round runs them."""
    return list({c.name: c for section in found for c in section.contenders}.values())


def _tokmill(name: str, files: str, arguments: Sequence[str], *more: str) -> Contender:
    return Contender(name, "tokmill", files, {"arguments": [*arguments, *more]}, warm=True)


def _peers(peers: Sequence[str], arguments: Sequence[str]) -> Section:
    slow = [name for name in SLOW if name in peers]
    files = {"datatrove": "split", "plain loop": "once", "encode_batch": "once"}
    return Section(
        "peers",
        [
            _tokmill(JSONL, "long", arguments),
            *(Contender(name, SLOW[name], files[name]) for name in slow),
        ],
        [Comparison("peers", f"{JSONL} : {name}", JSONL, [name]) for name in slow],
    )


def _ceiling(peers: Sequence[str], arguments: Sequence[str]) -> Section:
    alone = [
        Contender(
            f"{engine} alone, {mode}, {f'{batch >> 20} MiB a call' if batch else 'one call'}",
            "engine",
            "long",
            {"engine": engine, "mode": mode, "batch_bytes": batch},
        )
        for engine in ENGINES
        if engine in peers
        for mode, batch in FEEDINGS
    ]
    ours = [_tokmill(JSONL, "long", arguments), _tokmill(PARQUET, "parquet", arguments)]
    names = [contender.name for contender in alone]
    goals = {JSONL: 0.88, PARQUET: 0.92}
    return Section(
        "ceiling",
        [*ours, *alone],
        [
            Comparison(
                "ceiling",
                f"{name} : best engine alone{', own clock' if own else ''}",
                name,
                names,
                None if own else goal,
                own,
            )
            for name, goal in goals.items()
            for own in (False, True)
        ],
    )


def _auto(peers: Sequence[str], arguments: Sequence[str]) -> Section:
    forced = [
        _tokmill(f"tokmill, {engine} forced", "long", arguments, "--engine", engine)
        for engine in ENGINES
        if engine in peers
    ]
    names = [contender.name for contender in forced]
    return Section(
        "auto",
        [_tokmill(JSONL, "long", arguments), *forced],
        [
            Comparison("auto", f"{JSONL} : better engine forced", JSONL, names, 0.95),
            *(Comparison("auto", f"{JSONL} : {name}", JSONL, [name]) for name in names),
            Comparison("auto", f"{JSONL}{FIRST} : {JSONL}", JSONL + FIRST, [JSONL]),
        ],
    )


def _workers(arguments: Sequence[str], input_bytes: int) -> Section:
    parts = ("--part-bytes", str(max(1, input_bytes // 8)))  # enough parts to share
    one, two = (
        _tokmill(name, "long", arguments, *parts, "--workers", n, "--threads", "1")
        for name, n in ((ONE_WORKER, "1"), (TWO_WORKERS, "2"))
    )
    return Section(
        "workers",
        [_tokmill(JSONL, "long", arguments), one, two],
        [
            Comparison("workers", f"{TWO_WORKERS} : {ONE_WORKER}", two.name, [one.name], 1.8),
            Comparison("workers", f"{JSONL}, default : {TWO_WORKERS}", JSONL, [two.name]),
        ],
    )


def _start(arguments: Sequence[str]) -> Section:
    return Section("start", [_tokmill(START, "start", arguments)], [])
