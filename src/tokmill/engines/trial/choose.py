"""Chooses the engine of a run: exact first, then fastest for this very corpus."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tokmill.engines.choice import EngineChoice
from tokmill.engines.engine import FALLBACK_ENGINES, FAST_ENGINES, REFERENCE, engine_version
from tokmill.engines.trial.compare import (
    CorpusSample,
    Expected,
    Trial,
    encode_expected,
    try_engines,
)
from tokmill.engines.trial.scan import RememberedScan
from tokmill.engines.trial.tasks import EngineToLoad
from tokmill.errors import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokmill.engines.engine import Engine
    from tokmill.engines.trial.contexts import Group
    from tokmill.tokenizer.tokenizer import Tokenizer

NO_FAST_ENGINE = "no fast engine gives its ids here"


def choose_engine(
    tokenizer: Tokenizer,
    reference: Callable[[], Engine],
    sample: Callable[[], CorpusSample],
    *,
    asked: str,
    control_in_text: str,
    n_threads: int,
    timed: bool,
    groups: Sequence[Group] | None = None,
) -> EngineChoice:
    """Choose an engine for a tokenizer and a corpus.

    An engine is compared with the reference on all characters, unless an earlier run has done that,
    then on hostile texts and on the sample.

    Args:
        tokenizer: what to encode with.
        reference: loads its reference engine, with the same `control_in_text`.
        sample: reads documents of the corpus; both are called while candidates load.
        asked: `auto`, or the name of an engine, which then must prove itself or fail.
        control_in_text: see `load_engine`.
        n_threads: threads that the engine will have.
        timed: whether the run is long enough to be worth timing the candidates against each other.
        groups: see `RememberedScan`.

    Raises:
        TokenizerError: the engine asked for is missing, refuses the tokenizer or gives other ids.
    """
    version = engine_version(REFERENCE, tokenizer)
    if asked == REFERENCE:
        return EngineChoice(REFERENCE, version, "asked for", reference=version)

    reference = cache(reference)

    @cache
    def expected() -> Expected:
        return encode_expected(tokenizer, reference(), sample())

    trial, scan = Trial(), RememberedScan(tokenizer, reference, control_in_text, groups)
    for names in _rounds(asked, timed=timed):
        loadings = [EngineToLoad(name, tokenizer, control_in_text, n_threads) for name in names]
        try_engines(loadings, scan, expected, trial, timed=timed, may_refuse=asked == "auto")
        if trial.proven:
            break
    if asked != "auto" and not trial.proven:
        raise TokenizerError(
            f"{tokenizer.name}: engine {asked} cannot be used: {trial.refused[asked]}"
        )
    n_checked = len(expected().parity.texts)
    reference_speed = {REFERENCE: expected().mb_per_s} if expected().mb_per_s else {}
    if not trial.proven:
        return EngineChoice(
            REFERENCE,
            version,
            NO_FAST_ENGINE,
            n_checked,
            reference_speed,
            trial.refused,
            reference=version,
        )
    best = max(trial.proven, key=lambda name: trial.mb_per_s.get(name, 0.0))
    return EngineChoice(
        best,
        engine_version(best, tokenizer),
        _reason(best, tokenizer, asked, timed=timed),
        n_checked,
        trial.mb_per_s if best in FAST_ENGINES else reference_speed | trial.mb_per_s,
        trial.refused,
        reference=version,
        scan=trial.scans.get(best),
        scan_kept=best in trial.kept,
    )


def _reason(best: str, tokenizer: Tokenizer, asked: str, *, timed: bool) -> str:
    if asked == "auto" and best not in FAST_ENGINES:
        return NO_FAST_ENGINE
    reason = "asked for" if asked != "auto" else "fastest on a sample" if timed else "first exact"
    if tokenizer.rewrites and best in FAST_ENGINES:
        reason += f"; takes the tokenizer in other words: {', '.join(tokenizer.rewrites)}"
    return reason


def _rounds(asked: str, *, timed: bool) -> list[Sequence[str]]:
    """Give which engines are tried side by side: all that will be timed against each other."""
    if asked != "auto":
        return [(asked,)]
    first: list[Sequence[str]] = [FAST_ENGINES] if timed else [(name,) for name in FAST_ENGINES]
    return [*first, FALLBACK_ENGINES]
