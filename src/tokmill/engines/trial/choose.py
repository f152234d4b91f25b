"""Chooses the engine of a run: exact first, then fastest on this corpus.

`auto` takes the reference for little text, else one of the `candidates`. All of them are compared
with the reference in every run. The choice goes into the plan, which workers and resumed runs obey.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from tokmill.engines.choice import Continuation, EngineChoice
from tokmill.engines.engine import FAST_ENGINES, REFERENCE, engine_version
from tokmill.engines.trial.candidates import (
    ONLY_ONE,
    Candidates,
    EngineRequest,
    candidates,
    key_of,
    too_little,
)
from tokmill.engines.trial.compare import (
    Expected,
    Trial,
    encode_expected,
    try_engines,
)
from tokmill.engines.trial.engine_process import TIMED_OUT
from tokmill.engines.trial.remembered import remember
from tokmill.engines.trial.scan import Scan
from tokmill.engines.trial.speeds import Cost, KeptSpeeds, unspaced_share
from tokmill.engines.trial.tasks import EngineToLoad
from tokmill.errors import TokenizerError
from tokmill.tokenizer.continuation import continuation_tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.engines.choice import ScanResult
    from tokmill.engines.trial.candidates import Corpus
    from tokmill.engines.trial.compare import CorpusSample
    from tokmill.engines.trial.contexts import Group

COMPARING = "comparing engines with the reference: up to a minute, and once for each tokenizer"
NO_FAST_ENGINE = "no fast engine gives its ids here"


def choose_engine(
    request: EngineRequest, corpus: Corpus, *, has_continuations: bool
) -> EngineChoice:
    """Choose the engine for a corpus.

    `has_continuations`: some texts continue others and may need an engine of their own (SFT).

    Raises:
        TokenizerError: the engine asked for is missing, refuses the tokenizer or is not exact.
    """
    if request.asked == "auto" and (reason := too_little(request, corpus)):
        return _reference_choice(request, reason)
    found = candidates(request, corpus)
    choice = find_exact_engine(request, found)
    is_final = not any(reason.startswith(TIMED_OUT) for reason in choice.refused.values())
    if found.timed and is_final and choice.name == REFERENCE:
        remember(key_of(request), choice.as_json())
    return _with_continuation(choice, request, found) if has_continuations else choice


def _with_continuation(
    choice: EngineChoice, request: EngineRequest, found: Candidates
) -> EngineChoice:
    """Add the engine for texts that continue others, if they need a tokenizer variant."""
    variant = None if choice.name == REFERENCE else continuation_tokenizer(request.tokenizer)
    if variant is None or variant is request.tokenizer:
        return choice
    control = request.control_in_text
    load = request.engines.share(REFERENCE, variant, control_in_text=control, n_threads=1)
    of_variant = replace(request, tokenizer=variant, reference=load, asked=choice.name)
    try:
        one = replace(found, names=[choice.name], reason="asked for", timed=False)
        again = find_exact_engine(of_variant, one)
    except TokenizerError:
        return replace(choice, continuation=Continuation(REFERENCE))
    return replace(choice, continuation=Continuation(again.name, again.routed))


def find_exact_engine(
    request: EngineRequest, found: Candidates, *, groups: Sequence[Group] | None = None
) -> EngineChoice:
    """Try candidates, then other engines for `auto`, and return the best exact one.

    An engine is compared with the reference on characters, unless an earlier run did that, on
    hostile texts and on a sample of the corpus, which is read while engines load. The costs of
    engines that are timed are kept for later runs. `groups`: see `Scan`.

    Raises:
        TokenizerError: the engine asked for is missing, refuses the tokenizer or is not exact.
    """
    asked, tokenizer = request.asked, request.tokenizer
    if found.names[0] == REFERENCE:
        choice = _reference_choice(request, found.reason)
        return replace(choice, mb_per_s=found.mb_per_s, refused=found.refused)
    reference = cache(request.reference)

    @cache
    def expected() -> Expected:
        return encode_expected(tokenizer, reference(), found.sample())

    scan = Scan(
        tokenizer, reference, request.control_in_text, groups, all_characters=found.all_characters
    )
    if request.note is not None and any(scan.known(name) is None for name in found.names):
        request.note(COMPARING)
    trial = Trial()
    for names in _rounds(asked, found):
        loadings = [
            EngineToLoad(name, tokenizer, request.control_in_text, request.n_threads)
            for name in names
        ]
        try_engines(
            loadings,
            scan,
            expected,
            trial,
            request.engines,
            timed=found.timed,
            may_refuse=asked == "auto",
        )
        if trial.proven:
            break
    if asked != "auto" and not trial.proven:
        raise TokenizerError(
            f"{tokenizer.name}: engine {asked} cannot be used: {trial.refused[asked]}"
        )
    return _best(request, expected(), trial, found)


def _rounds(asked: str, found: Candidates) -> list[Sequence[str]]:
    """Return the engines of each round; those of one round load side by side and are timed."""
    rounds: list[Sequence[str]] = [found.names] if found.timed else [(one,) for one in found.names]
    if asked == "auto":
        rounds += [(name,) for name in FAST_ENGINES if name not in found.names]
    return rounds


def _best(
    request: EngineRequest, expected: Expected, trial: Trial, found: Candidates
) -> EngineChoice:
    """Return the fastest of the exact engines, or the reference."""
    n_checked = len(expected.texts)
    if not trial.proven:
        speeds = {REFERENCE: expected.mb_per_s} if expected.mb_per_s else {}
        choice = _reference_choice(request, NO_FAST_ENGINE)
        return replace(choice, n_checked=n_checked, mb_per_s=speeds, refused=trial.refused)
    best, reason, speeds = fastest(request, expected.sample, trial, found)
    choice = exact_choice(request, best, reason, trial.scans.get(best))
    return replace(
        choice,
        n_checked=n_checked,
        mb_per_s=speeds,
        refused=trial.refused,
        scan_kept=best in trial.kept,
    )


def exact_choice(
    request: EngineRequest, name: str, reason: str, scan: ScanResult | None
) -> EngineChoice:
    """Return the choice of an engine that gives the ids of the reference."""
    rewrites = ", ".join(request.tokenizer.rewrites)
    if rewrites and name in FAST_ENGINES:
        reason += f"; takes the tokenizer in other words: {rewrites}"
    version, of_reference = (engine_version(one, request.tokenizer) for one in (name, REFERENCE))
    return EngineChoice(name, version, reason, reference=of_reference, scan=scan)


def fastest(
    request: EngineRequest, sample: CorpusSample, trial: Trial, found: Candidates
) -> tuple[str, str, dict[str, float]]:
    """Return the fastest of the exact engines, the reason, and the speeds of all in MB/s."""
    n_threads = request.n_threads
    if not found.timed:
        known = {one: speed for one, speed in found.mb_per_s.items() if one not in trial.refused}
        return trial.proven[0], found.reason, known
    kept, share = (
        KeptSpeeds(request.tokenizer, request.control_in_text),
        unspaced_share(sample.texts),
    )
    if any(name not in trial.speeds for name in trial.proven):  # no text to time them on
        ranking = kept.rank(trial.proven, share, sample.corpus_bytes, n_threads)
        return ranking.names[0], ranking.basis, {}
    costs = {name: Cost.of(trial.speeds[name], sample.new_share) for name in trial.proven}
    name = min(costs, key=lambda one: costs[one].seconds(sample.corpus_bytes, n_threads))
    if len(costs) > 1:
        kept.keep(share, {one: Cost.of(trial.speeds[one]) for one in costs})
    reason = found.reason if len(costs) > 1 else ONLY_ONE
    return name, reason, {one: cost.mb_per_s(n_threads) for one, cost in costs.items()}


def _reference_choice(request: EngineRequest, reason: str) -> EngineChoice:
    version = engine_version(REFERENCE, request.tokenizer)
    return EngineChoice(REFERENCE, version, reason, reference=version)
