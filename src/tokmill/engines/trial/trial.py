"""Engines on trial: compared with the reference side by side, then timed one by one."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from tokmill.engines.find_characters import CharacterFinder
from tokmill.engines.trial.candidate import Candidate, Speed, Timing
from tokmill.engines.trial.corpus_sample import timing_texts
from tokmill.engines.trial.here import HereCandidate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tokmill.engines.character_set import CharacterSet
    from tokmill.engines.trial.candidate import Loading
    from tokmill.engines.trial.corpus_sample import Sample, Taken
    from tokmill.engines.trial.scan import ScanResult
    from tokmill.engines.trial.scanner import Scanner

    Trialled = Candidate | HereCandidate

MOST_ROUTED = 0.05
"""With more of the text for the reference, an engine is not fast; of unusual text it may be."""


@dataclass(slots=True)
class Trial:
    """What became of the candidates so far."""

    proven: list[str] = field(default_factory=list)
    mb_per_s: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    scans: dict[str, ScanResult] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)


def try_engines(
    loadings: Sequence[Loading],
    scanner: Scanner,
    taken: Callable[[], Taken],
    trial: Trial,
    *,
    timed: bool,
    may_refuse: bool,
) -> None:
    """Let candidates load, prove themselves side by side, and be timed one by one."""
    with ExitStack() as stack:
        candidates: list[Trialled] = []
        for loading in loadings:
            # In a process of its own, unless it has gone through a scan of this variant: then it
            # does not end this one, and a process costs more than what is compared in it.
            is_known = not timed and scanner.known(loading.engine) is not None
            one: Trialled = HereCandidate(loading) if is_known else Candidate(loading)
            candidates.append(one)
            stack.enter_context(one)
        sample = taken().sample
        for candidate in candidates:
            candidate.begin(taken().parity)
        differences = {one.name: _differences(one, taken().parity.texts) for one in candidates}
        for candidate in candidates:
            scanner.begin(candidate)
        for candidate in candidates:
            _judge(candidate, scanner, differences[candidate.name], trial)
            if may_refuse:
                _refuse_slow(candidate, sample, trial)
        timing = timing_texts(sample) if timed else Timing(())
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


def _differences(candidate: Trialled, texts: Sequence[str]) -> dict[str, str]:
    """Return the texts that a candidate encodes in another way, each with a line about it.

    A text of ASCII alone refuses it; of others a character may be to blame that is not for it.
    """
    found = candidate.result().get("differences", {})
    differences = {texts[i]: line for i, line in found.items()}
    plain = [line for text, line in differences.items() if text.isascii()]
    candidate.refused = candidate.refused or next(iter(plain), "")
    return differences


def _judge(
    candidate: Trialled, scanner: Scanner, differences: Mapping[str, str], trial: Trial
) -> None:
    """Refuse a candidate for what its scan found, or for texts whose characters are all its own."""
    if not candidate.refused and scanner.known(candidate.name) is not None:
        trial.kept.add(candidate.name)
    found = scanner.result(candidate)
    if found is None:
        return
    trial.scans[candidate.name] = found
    others = frozenset(map(chr, found.differs.codes()))
    own = [line for text, line in differences.items() if others.isdisjoint(text)]
    candidate.refused = next(iter(own), found.refused)


def _refuse_slow(candidate: Trialled, sample: Sample, trial: Trial) -> None:
    """Refuse a candidate that would leave much of the corpus to the reference."""
    if candidate.refused:
        return
    differs = trial.scans[candidate.name].differs
    share = _share_with(differs, sample.texts)
    if share > MOST_ROUTED:
        candidate.refused = (
            f"its ids differ from the reference's on {len(differs)} characters, and {share:.0%} of "
            "a sample of this corpus would have to go to the reference"
        )


def _share_with(characters: CharacterSet, texts: Sequence[str]) -> float:
    """Return the share of texts, by characters, that holds one of a set."""
    if not characters or not texts:
        return 0.0
    holders = CharacterFinder(characters).documents(pa.array(texts, pa.large_string()))
    return sum(len(texts[i]) for i in holders.tolist()) / max(1, sum(map(len, texts)))


def expected_speed(speed: Speed, n_bytes: int, sample: Sample) -> float:
    """Return the MB/s that an engine should reach on a corpus, from its speed on a sample.

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
