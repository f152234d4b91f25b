"""Chooses the engine of a run: exact first, then fastest for this very corpus."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tokmill.encode.candidate import Candidate, Loading, Parity, Speed, Timing
from tokmill.encode.control import control_strings
from tokmill.encode.engine import FALLBACK_ENGINES, FAST_ENGINES, REFERENCE, engine_version
from tokmill.encode.hostile import hostile_texts
from tokmill.encode.spot import spot_share
from tokmill.errors import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tokmill.encode.engine import Engine
    from tokmill.encode.tokenizer import Tokenizer

PARITY_BYTES = 512 << 10
"""Corpus text that every candidate must encode like the reference, besides the hostile texts."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Documents of a corpus, spread over it.

    `corpus_bytes`: of text, in the whole corpus; `new_share`: how much of it has not been
    seen before when it comes, 1 where no document comes twice.
    """

    texts: Sequence[str]
    corpus_bytes: int = 0
    new_share: float = 1.0


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine of a run and how it was found; fixed in the plan for workers and resumes.

    `mb_per_s`: what each exact candidate may be expected to encode of this corpus. `spot_share`: of
    the text that the reference encodes again while the run goes on; of a plan that does not say it,
    and of a new one, what this version finds right for the engine.
    """

    name: str
    version: str
    reason: str
    n_checked: int = 0
    mb_per_s: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    spot_share: float = 0.0

    def __post_init__(self) -> None:
        """Fill in the share."""
        if not self.spot_share:
            object.__setattr__(self, "spot_share", spot_share(self.name))

    def as_json(self) -> dict[str, Any]:
        """Give the choice as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EngineChoice:
        """Read what `as_json` gave."""
        return cls(**data)


@dataclass(slots=True)
class _Trial:
    """What became of the candidates so far."""

    proven: list[str] = field(default_factory=list)
    mb_per_s: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def choose_engine(
    tokenizer: Tokenizer,
    reference: Callable[[], Engine],
    sample: Callable[[], Sample],
    *,
    asked: str,
    control_in_text: str,
    n_threads: int,
    timed: bool,
) -> EngineChoice:
    """Choose an engine for a tokenizer and a corpus.

    Args:
        tokenizer: what to encode with.
        reference: loads its reference engine, with the same `control_in_text`.
        sample: reads documents of the corpus; both are called while candidates load.
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

    @cache
    def taken() -> tuple[Parity, Sample]:
        return _parity(tokenizer, reference(), sample())

    trial = _Trial()
    for names in _rounds(asked, timed=timed):
        loadings = [Loading(name, tokenizer, control_in_text, n_threads) for name in names]
        _try(loadings, taken, trial, timed=timed)
        if trial.proven:
            break
    if asked != "auto" and not trial.proven:
        raise TokenizerError(
            f"{tokenizer.name}: engine {asked} cannot be used: {trial.refused[asked]}"
        )
    if not trial.proven:
        reason = "no fast engine gives its ids here"
        n_checked = len(taken()[0].texts)
        return EngineChoice(REFERENCE, version, reason, n_checked, {}, trial.refused)
    best = max(trial.proven, key=lambda name: trial.mb_per_s.get(name, 0.0))
    reason = "asked for" if asked != "auto" else "fastest on a sample" if timed else "first exact"
    if asked == "auto" and best not in FAST_ENGINES:
        reason = "no fast engine gives its ids here"
    elif tokenizer.rewrites and best in FAST_ENGINES:
        reason += f"; takes the tokenizer in other words: {', '.join(tokenizer.rewrites)}"
    return EngineChoice(
        best,
        engine_version(best, tokenizer),
        reason,
        len(taken()[0].texts),
        trial.mb_per_s,
        trial.refused,
    )


def expected_speed(speed: Speed, n_bytes: int, sample: Sample) -> float:
    """Give the MB/s that an engine should reach on a corpus, from its speed on a sample.

    An engine that keeps words is faster the more it has seen. What a new byte costs above a known
    one is taken to fall as a power of the text seen (Heaps' law: so do new words), through its mean
    over the first half of the sample and over the second.

    Args:
        speed: as measured on `n_bytes` of text in two halves.
        n_bytes: at least 1.
        sample: says how large the corpus is, and how much of it is new.
    """
    excess = max(speed.first - speed.again, 0.0)
    if excess > 0:
        ratio = min(max(speed.second - speed.again, 0.0) / excess, 1.0)
        # The mean over the first x halves is proportional to x**-fall.
        fall = 1 - math.log2(1 + ratio)
        new_bytes = sample.new_share * sample.corpus_bytes
        excess *= max(1.0, new_bytes / (n_bytes / 2)) ** -fall * sample.new_share
    return 1e-6 / max(speed.again + excess, 1e-12)


def _rounds(asked: str, *, timed: bool) -> list[Sequence[str]]:
    """Give which engines are tried side by side: all that will be timed against each other."""
    if asked != "auto":
        return [(asked,)]
    first: list[Sequence[str]] = [FAST_ENGINES] if timed else [(name,) for name in FAST_ENGINES]
    return [*first, FALLBACK_ENGINES]


def _try(
    loadings: Sequence[Loading],
    taken: Callable[[], tuple[Parity, Sample]],
    trial: _Trial,
    *,
    timed: bool,
) -> None:
    """Let candidates load, prove themselves side by side, and be timed one by one."""
    with ExitStack() as stack:
        candidates = [stack.enter_context(Candidate(loading)) for loading in loadings]
        parity, sample = taken()
        for candidate in candidates:
            candidate.begin(parity)
        for candidate in candidates:
            candidate.result()
        timing = _timing(sample) if timed else Timing(())
        for candidate in candidates:
            if timing.texts and not candidate.refused:
                candidate.begin(timing)
                answer = candidate.result()
                if not candidate.refused:
                    speed = expected_speed(Speed(**answer), timing.n_bytes, sample)
                    trial.mb_per_s[candidate.name] = round(speed, 1)
            if candidate.refused:
                trial.refused[candidate.name] = candidate.refused
            else:
                trial.proven.append(candidate.name)


def _parity(tokenizer: Tokenizer, reference: Engine, sample: Sample) -> tuple[Parity, Sample]:
    step = _step(sample.texts)
    texts = hostile_texts(control_strings(tokenizer)) + list(sample.texts[::step])
    batch = reference.encode(pa.array(texts, pa.large_string()))
    ends = zip(batch.offsets, batch.offsets[1:], strict=False)
    return Parity(texts, [batch.ids[start:stop] for start, stop in ends]), sample


def _timing(sample: Sample) -> Timing:
    """Give the documents that `_parity` left, if any: those that it has shown are not new."""
    step = _step(sample.texts)
    return Timing([text for i, text in enumerate(sample.texts) if i % step] or sample.texts)


def _step(texts: Sequence[str]) -> int:
    """Give the step over a sample that takes about `PARITY_BYTES` of it, evenly spread."""
    total = sum(len(text) for text in texts)
    return max(1, -(-total * 2 // PARITY_BYTES))
