"""Chooses the engine of a run: exact first, then fastest, on a sample of this very corpus.

Every candidate is probed in a child process of its own: a native panic is not an exception.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tokmill.encode.control import control_strings
from tokmill.encode.engine import (
    FAST_ENGINES,
    REFERENCE,
    engine_version,
    is_installed,
)
from tokmill.encode.hostile import hostile_texts
from tokmill.errors import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokmill.encode.engine import Engine
    from tokmill.encode.tokenizer import Tokenizer

PARITY_BYTES = 512 << 10
"""Corpus text that every candidate must encode like the reference, besides the hostile texts."""

PROBE_TIMEOUT_S = 120
TIMED_OUT = "did not finish"


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine of a run and how it was found; fixed in the plan for workers and resumes."""

    name: str
    version: str
    reason: str
    n_checked: int = 0
    mb_per_s: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Give the choice as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EngineChoice:
        """Read what `as_json` gave."""
        return cls(**data)


@dataclass(frozen=True, slots=True)
class ProbeTask:
    """What a child process gets: encode, compare, time."""

    engine: str
    tokenizer: Tokenizer
    control_in_text: str
    n_threads: int
    parity_texts: Sequence[str]
    parity_ids: Sequence[Any]
    timing_texts: Sequence[str]


def choose_engine(
    tokenizer: Tokenizer,
    reference: Engine,
    sample: Sequence[str],
    *,
    asked: str,
    control_in_text: str,
    n_threads: int,
    timed: bool,
) -> EngineChoice:
    """Choose an engine for a tokenizer and a corpus.

    Args:
        tokenizer: what to encode with.
        reference: its reference engine, with the same `control_in_text`.
        sample: documents of the corpus, spread over it.
        asked: `auto`, or the name of an engine, which then must prove itself or fail.
        control_in_text: see `load_engine`.
        n_threads: threads that the engine will have.
        timed: whether the run is long enough to be worth timing the candidates against each other.

    Raises:
        TokenizerError: the engine asked for is missing, refuses the tokenizer or gives other ids.
    """
    version = engine_version(REFERENCE, tokenizer)
    if asked == REFERENCE:
        return EngineChoice(REFERENCE, version, "asked for")
    texts = hostile_texts(control_strings(tokenizer)) + _up_to(sample, PARITY_BYTES)
    expected = reference.encode(pa.array(texts, pa.large_string()))
    ids = [expected.ids[a:b] for a, b in zip(expected.offsets, expected.offsets[1:], strict=False)]
    speeds: dict[str, float] = {}
    refused: dict[str, str] = {}
    for name in FAST_ENGINES if asked == "auto" else (asked,):
        task = ProbeTask(
            name, tokenizer, control_in_text, n_threads, texts, ids, sample if timed else ()
        )
        result = probe(task)
        if "refused" in result:
            refused[name] = result["refused"]
            continue
        speeds[name] = result["mb_per_s"]
        if not timed:
            break
    if asked != "auto" and asked in refused:
        raise TokenizerError(f"{tokenizer.name}: engine {asked} cannot be used: {refused[asked]}")
    if not speeds:
        return EngineChoice(
            REFERENCE, version, "no fast engine gives its ids here", len(texts), {}, refused
        )
    best = max(speeds, key=lambda name: speeds[name])
    reason = "asked for" if asked != "auto" else "fastest on a sample" if timed else "first exact"
    if tokenizer.rewrites:
        reason += f"; takes the tokenizer in other words: {', '.join(tokenizer.rewrites)}"
    measured = {name: speed for name, speed in speeds.items() if speed}
    return EngineChoice(
        best, engine_version(best, tokenizer), reason, len(texts), measured, refused
    )


def _up_to(sample: Sequence[str], limit_bytes: int) -> list[str]:
    """Give documents spread evenly over the sample, about `limit_bytes` of them."""
    total = sum(len(text) for text in sample)
    step = max(1, -(-total * 2 // limit_bytes))
    return list(sample[::step])


def probe(task: ProbeTask) -> dict[str, Any]:
    """Run one candidate in a child process: its speed in `mb_per_s`, or why it is `refused`."""
    if not is_installed(task.engine):
        return {"refused": "not installed"}
    with tempfile.TemporaryDirectory(prefix="tokmill-") as directory:
        path = Path(directory) / "task"
        path.write_bytes(pickle.dumps(task))
        try:
            child = subprocess.run(
                [sys.executable, "-m", "tokmill.encode.probe", str(path)],
                capture_output=True,
                text=True,
                timeout=PROBE_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"refused": f"{TIMED_OUT} within {PROBE_TIMEOUT_S} s"}
    if child.returncode:
        last = (child.stderr.strip().splitlines() or ["no message"])[-1]
        return {"refused": f"died with status {child.returncode}: {last[:200]}"}
    answer: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return answer
