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
KEPT_RIVALS = 2
FIRST = ", very first run"
"""Suffix of the name under which a warm contender's first run stands."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One thing to time. `files`: see `Corpus.inputs`. `warm`: run once before the rounds.

    `is_slow`: runs in the first round only, since it takes a minute and its speed is steady.
    `rivals`: of contenders with the same name here, the `KEPT_RIVALS` that were fastest in the
    first round go on.
    """

    name: str
    peer: str
    files: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    warm: bool = False
    is_slow: bool = False
    rivals: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A ratio of throughputs: `over` by the best of `under`, pair by pair.

    `goal`: the least ratio that is asked for, where there is one. `own_clock`: without start-up.
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


@dataclass(frozen=True, slots=True)
class Goals:
    """The least ratios that are asked for on two cores; None where nothing is."""

    datatrove: float | None = None
    encode_batch: float | None = None
    jsonl: float | None = None
    parquet: float | None = None
    auto: float = 0.95


def goals(tokenizer: str, family: str, *, is_chinese: bool) -> Goals:
    """Return the goals for a tokenizer and its family on English or on Chinese text."""
    if family == "byte-level BPE":
        datatrove = (
            (22 if is_chinese else 40) if tokenizer == "gpt2" else (20 if is_chinese else 25)
        )
        of_engine = (0.7, 0.7) if is_chinese else (0.55, 0.6)
        return Goals(datatrove, 8 if is_chinese else 20, *of_engine)
    if family.startswith("SentencePiece"):
        return Goals(10, 6)
    return Goals()


def sections(
    chosen: Sequence[str],
    peers: Sequence[str],
    arguments: Sequence[str],
    input_bytes: int,
    asked: Goals,
) -> list[Section]:
    """Return the sections asked for; `arguments` go to every `tokmill pretrain`."""
    makers = {
        "peers": lambda: _peers(peers, arguments, asked),
        "ceiling": lambda: _ceiling(peers, arguments, asked),
        "auto": lambda: _auto(peers, arguments, asked),
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


def _peers(peers: Sequence[str], arguments: Sequence[str], asked: Goals) -> Section:
    slow = [name for name in SLOW if name in peers]
    files = {"datatrove": "split", "plain loop": "lines", "encode_batch": "lines"}
    least = {"datatrove": asked.datatrove, "encode_batch": asked.encode_batch, "plain loop": None}
    return Section(
        "peers",
        [
            _tokmill(JSONL, "lines", arguments),
            *(Contender(name, SLOW[name], files[name], is_slow=True) for name in slow),
        ],
        [Comparison("peers", f"{JSONL} : {name}", JSONL, [name], least[name]) for name in slow],
    )


def _ceiling(peers: Sequence[str], arguments: Sequence[str], asked: Goals) -> Section:
    alone = [
        Contender(
            f"{engine} alone, {mode}, {f'{batch >> 20} MiB a call' if batch else 'one call'}",
            "engine",
            "lines",
            {"engine": engine, "mode": mode, "batch_bytes": batch},
            rivals=engine,
        )
        for engine in ENGINES
        if engine in peers
        for mode, batch in FEEDINGS
    ]
    ours = [_tokmill(JSONL, "lines", arguments), _tokmill(PARQUET, "parquet", arguments)]
    names = [contender.name for contender in alone]
    least = {JSONL: asked.jsonl, PARQUET: asked.parquet}
    return Section(
        "ceiling",
        [*ours, *alone],
        [
            Comparison(
                "ceiling",
                f"{name} : best engine alone{'' if own else ', whole command'}",
                name,
                names,
                goal if own else None,
                own,
            )
            for name, goal in least.items()
            for own in (True, False)
        ],
    )


def _auto(peers: Sequence[str], arguments: Sequence[str], asked: Goals) -> Section:
    forced = [
        _tokmill(f"tokmill, {engine} forced", "lines", arguments, "--engine", engine)
        for engine in ENGINES
        if engine in peers
    ]
    names = [contender.name for contender in forced]
    return Section(
        "auto",
        [_tokmill(JSONL, "lines", arguments), *forced],
        [
            Comparison("auto", f"{JSONL} : better engine forced", JSONL, names, asked.auto),
            *(Comparison("auto", f"{JSONL} : {name}", JSONL, [name]) for name in names),
            Comparison("auto", f"{JSONL}{FIRST} : {JSONL}", JSONL + FIRST, [JSONL]),
        ],
    )


def _workers(arguments: Sequence[str], input_bytes: int) -> Section:
    parts = ("--part-bytes", str(max(1, input_bytes // 8)))  # enough parts to share
    one, two = (
        _tokmill(name, "lines", arguments, *parts, "--workers", n, "--threads", "1")
        for name, n in ((ONE_WORKER, "1"), (TWO_WORKERS, "2"))
    )
    return Section(
        "workers",
        [_tokmill(JSONL, "lines", arguments), one, two],
        [
            Comparison("workers", f"{TWO_WORKERS} : {ONE_WORKER}", two.name, [one.name], 1.8),
            Comparison("workers", f"{JSONL}, default : {TWO_WORKERS}", JSONL, [two.name]),
        ],
    )


def _start(arguments: Sequence[str]) -> Section:
    return Section("start", [_tokmill(START, "start", arguments)], [])
