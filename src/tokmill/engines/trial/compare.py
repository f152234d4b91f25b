"""Compares engines with the reference, side by side, then times them one by one."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from tokmill.engines.characters import CharacterFinder
from tokmill.engines.trial.engine_process import EngineProcess, InProcessEngine
from tokmill.engines.trial.hostile_texts import hostile_texts
from tokmill.tokenizer.control_tokens import control_token_strings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from tokmill.engines.characters import CharacterSet
    from tokmill.engines.choice import ScanResult
    from tokmill.engines.engine import Engine
    from tokmill.engines.store import EngineStore
    from tokmill.engines.trial.engine_process import EngineOnTrial
    from tokmill.engines.trial.scan import Scan
    from tokmill.engines.trial.tasks import EngineToLoad, Speed
    from tokmill.tokenizer.tokenizer import Tokenizer

PARITY_BYTES = 512 << 10
"""Corpus text that every engine must encode like the reference, in addition to hostile texts."""

_TIMED_BYTES = 16 << 10
"""With fewer bytes the reference's speed is not measured."""

MOST_ROUTED = 0.05
"""An engine that sends more of the text to the reference is not fast; unusual text can do that."""


@dataclass(frozen=True, slots=True)
class CorpusSample:
    """Documents spread over a corpus.

    `corpus_bytes`: text in all of the corpus. `new_share`: share of it that is not a repeated
    document.
    """

    texts: Sequence[str]
    corpus_bytes: int = 0
    new_share: float = 1.0


@dataclass(frozen=True, slots=True)
class Expected:
    """Texts with the reference's ids, and its speed on the sample in MB/s, 0 if unknown."""

    texts: Sequence[str]
    ids: Sequence[npt.NDArray[np.uint32]]
    sample: CorpusSample
    mb_per_s: float


@dataclass(slots=True)
class Trial:
    """Results of the engines compared so far."""

    proven: list[str] = field(default_factory=list)
    speeds: dict[str, Speed] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    scans: dict[str, ScanResult] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)


def encode_expected(tokenizer: Tokenizer, reference: Engine, sample: CorpusSample) -> Expected:
    """Return the hostile texts and a part of the sample, with the reference's ids."""
    some = list(sample.texts[:: parity_stride(sample.texts)])
    hostile = hostile_texts(control_token_strings(tokenizer))
    expected = _ids(reference, hostile)
    start = time.perf_counter()
    expected += _ids(reference, some)
    seconds, n_bytes = time.perf_counter() - start, sum(len(text.encode()) for text in some)
    speed = round(n_bytes / seconds / 1e6, 1) if n_bytes >= _TIMED_BYTES else 0.0
    return Expected(hostile + some, expected, sample, speed)


def _ids(reference: Engine, texts: Sequence[str]) -> list[npt.NDArray[np.uint32]]:
    batch = reference.encode(pa.array(texts, pa.large_string()))
    ends = zip(batch.offsets, batch.offsets[1:], strict=False)
    return [batch.ids[start:stop] for start, stop in ends]


def timing_texts(sample: CorpusSample) -> Sequence[str]:
    """Return the documents that the parity check does not use; an engine has cached the others."""
    stride = parity_stride(sample.texts)
    return [text for i, text in enumerate(sample.texts) if i % stride] or sample.texts


def parity_stride(texts: Sequence[str]) -> int:
    """Return the stride that takes about `PARITY_BYTES` of a sample, spread evenly."""
    total = sum(len(text) for text in texts)
    return max(1, -(-total * 2 // PARITY_BYTES))


def try_engines(
    loadings: Sequence[EngineToLoad],
    scan: Scan,
    expected: Callable[[], Expected],
    trial: Trial,
    engines: EngineStore,
    *,
    timed: bool,
    may_refuse: bool,
) -> None:
    """Load engines, compare them side by side, time them one by one; add the results to `trial`.

    `engines`: keeps those that this process loads.
    """
    with ExitStack() as stack:
        tried: list[EngineOnTrial] = []
        for loading in loadings:
            # An engine that went through a scan of this variant did not crash: it needs no child,
            # which costs more than the comparison in it.
            is_known = not timed and scan.known(loading.engine) is not None
            engine = InProcessEngine(loading, engines) if is_known else EngineProcess(loading)
            tried.append(engine)
            stack.enter_context(engine)
        texts, sample = expected().texts, expected().sample
        for engine in tried:
            engine.begin("differences", texts, expected().ids)
        differences = {one.name: _differences(one, texts) for one in tried}
        for engine in tried:
            scan.begin(engine)
        for engine in tried:
            _judge(engine, scan, differences[engine.name], trial)
            if may_refuse:
                _refuse_slow(engine, sample, trial)
        for engine in tried:
            if timed:
                _time(engine, sample, trial)
            if engine.refused:
                trial.refused[engine.name] = engine.refused
            else:
                trial.proven.append(engine.name)


def _differences(engine: EngineOnTrial, texts: Sequence[str]) -> dict[str, str]:
    """Return the texts with other ids, each with a description.

    A different ASCII text refuses the engine. In other texts, a character that is routed to the
    reference can be the cause.
    """
    differences = {texts[i]: line for i, line in (engine.result() or {}).items()}
    ascii_only = [line for text, line in differences.items() if text.isascii()]
    engine.refused = engine.refused or next(iter(ascii_only), "")
    return differences


def _judge(engine: EngineOnTrial, scan: Scan, differences: Mapping[str, str], trial: Trial) -> None:
    """Refuse an engine for its scan, or for a differing text without a routed character."""
    if not engine.refused and scan.known(engine.name) is not None:
        trial.kept.add(engine.name)
    found = scan.result(engine)
    if found is None:
        return
    trial.scans[engine.name] = found
    explained = set(_documents_with(found.routed, list(differences)))
    unexplained = [line for i, line in enumerate(differences.values()) if i not in explained]
    engine.refused = next(iter(unexplained), found.refused)


def _refuse_slow(engine: EngineOnTrial, sample: CorpusSample, trial: Trial) -> None:
    """Refuse an engine that would send much of the corpus to the reference."""
    if engine.refused:
        return
    differs = trial.scans[engine.name].differs
    share = routed_share(differs, sample.texts)
    if share > MOST_ROUTED:
        engine.refused = (
            f"its ids differ from the reference's on {len(differs)} characters, and {share:.0%} of "
            "a sample of this corpus would have to go to the reference"
        )


def routed_share(characters: CharacterSet, texts: Sequence[str]) -> float:
    """Return the share of texts, by characters, that contains a character of a set."""
    found = sum(len(texts[i]) for i in _documents_with(characters, texts))
    return found / max(1, sum(map(len, texts)))


def _documents_with(characters: CharacterSet, texts: Sequence[str]) -> list[int]:
    """Return the indices of the texts that contain a character of a set, which may be empty."""
    if not characters:
        return []
    found: list[int] = (
        CharacterFinder(characters).documents(pa.array(texts, pa.large_string())).tolist()
    )
    return found


def _time(engine: EngineOnTrial, sample: CorpusSample, trial: Trial) -> None:
    """Measure the speed of an engine, if there is text for it."""
    texts = timing_texts(sample)
    if not texts:
        return
    engine.begin("speed", texts, sample.new_share < 1)
    speed = engine.result()
    if speed is not None:
        trial.speeds[engine.name] = speed
