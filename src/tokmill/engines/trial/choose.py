"""Chooses the engine of a run: exact first, then fastest on this corpus.

`auto` takes the reference for little text. Otherwise an engine that an earlier run chose on this
machine is compared with the reference again, without timing; if none is remembered or it fails,
all engines are tried. The choice goes into the plan, which workers and resumed runs obey.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from tokmill.dataset.canonical import canonical_json, sha256_hex
from tokmill.engines.choice import Continuation, EngineChoice
from tokmill.engines.engine import (
    FALLBACK_ENGINES,
    FAST_ENGINES,
    REFERENCE,
    engine_version,
    is_installed,
)
from tokmill.engines.store import EngineStore
from tokmill.engines.trial.compare import (
    PARITY_BYTES,
    Expected,
    Trial,
    encode_expected,
    try_engines,
)
from tokmill.engines.trial.engine_process import TIMED_OUT
from tokmill.engines.trial.remembered import KeptScans, choice_key, remember, remembered
from tokmill.engines.trial.scan import Scan
from tokmill.engines.trial.tasks import EngineToLoad
from tokmill.errors import TokenizerError
from tokmill.tokenizer.continuation import continuation_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokmill.engines.engine import Engine
    from tokmill.engines.trial.compare import CorpusSample
    from tokmill.engines.trial.contexts import Group
    from tokmill.tokenizer.tokenizer import Tokenizer

TIMED_FROM_BYTES = 128 << 20
"""With less input the first exact engine is taken: timing several costs more than it saves."""

TIMED_FROM_BYTES_PER_ID = 2 << 10
"""The same per id of the vocabulary, whose size decides how long engines take to load."""

TIMED_SAMPLE_BYTES = 4 << 20

SCANNED_FROM_BYTES = 32 << 20
"""With less input the reference is done before another engine has been compared with it on all
characters, which takes 5 to 10 s on two cores. An engine that was compared before can be taken."""

TRIED_FROM_BYTES = 4 << 20
"""With less input the reference is done before another engine has loaded in a child process."""

NO_FAST_ENGINE = "no fast engine gives its ids here"


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """The settings that decide about the engine of a run.

    `reference`: loads the reference engine of the tokenizer. `asked`: `auto`, or the name of an
    engine, which then must be exact or the run fails. `control_in_text`: see `load_engine`.
    `n_threads`: threads that the engine will have. `engines`: keeps those that this process loads.
    """

    tokenizer: Tokenizer
    reference: Callable[[], Engine]
    asked: str
    control_in_text: str
    n_threads: int
    engines: EngineStore = field(default_factory=EngineStore)


@dataclass(frozen=True, slots=True)
class Corpus:
    """The input of a run.

    `files`: path, size and modification time of each, part of the key of a remembered choice.
    `is_stream`: standard input, of unknown size. `sample`: reads about so many bytes of documents,
    at random places if its second argument says so.
    """

    n_bytes: int
    files: Sequence[tuple[str, int, int]]
    is_stream: bool
    sample: Callable[[int, bool], CorpusSample]


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
    timed = is_timed(request, corpus)
    limit_bytes = TIMED_SAMPLE_BYTES if timed else PARITY_BYTES
    sample = cache(partial(corpus.sample, limit_bytes, timed))
    key = key_of(request, corpus)
    choice = _remembered_choice(key, request, sample)
    if choice is None:
        choice = find_exact_engine(request, sample, timed=timed)
        if not any(reason.startswith(TIMED_OUT) for reason in choice.refused.values()):
            remember(key, choice.as_json())
    return _with_continuation(choice, request, sample) if has_continuations else choice


def is_timed(request: EngineRequest, corpus: Corpus) -> bool:
    """Return whether engines are timed for a corpus, if no choice is remembered."""
    per_id = TIMED_FROM_BYTES_PER_ID * request.tokenizer.vocab_size
    return request.asked == "auto" and corpus.n_bytes >= max(TIMED_FROM_BYTES, per_id)


def too_little(request: EngineRequest, corpus: Corpus) -> str:
    """Return why a corpus is too small to try an engine for it, or ''."""
    if corpus.is_stream or corpus.n_bytes >= SCANNED_FROM_BYTES:
        return ""
    if corpus.n_bytes >= TRIED_FROM_BYTES:
        kept = KeptScans(request.tokenizer, request.control_in_text)
        found = [kept.find(name) for name in FAST_ENGINES if is_installed(name)]
        if any(scan is not None and not scan.refused for scan in found):
            return ""
    return "quicker than proving another engine for so little text"


def key_of(request: EngineRequest, corpus: Corpus) -> str:
    """Return the key of the remembered choice; only a timed choice depends on the corpus."""
    files = [list(file) for file in corpus.files] if is_timed(request, corpus) else []
    parts = (request.asked, str(request.n_threads), sha256_hex(canonical_json(files)))
    return choice_key(request.tokenizer, request.control_in_text, *parts)


def known_choice(key: str) -> EngineChoice | None:
    """Return the choice of an earlier run, None if there is none."""
    try:
        return EngineChoice.from_json(remembered(key) or {})
    except TypeError:  # none, or kept by another version
        return None


def _remembered_choice(
    key: str, request: EngineRequest, sample: Callable[[], CorpusSample]
) -> EngineChoice | None:
    """Return the choice of an earlier run, if there is one and it is exact on this corpus too."""
    known = known_choice(key)
    if known is None:
        return None
    if known.name == REFERENCE:
        return replace(known, n_checked=0)
    try:
        found = find_exact_engine(replace(request, asked=known.name), sample, timed=False)
    except TokenizerError:  # other ids on this corpus
        return None
    return replace(found, reason=known.reason, mb_per_s=known.mb_per_s, refused=known.refused)


def _with_continuation(
    choice: EngineChoice, request: EngineRequest, sample: Callable[[], CorpusSample]
) -> EngineChoice:
    """Add the engine for texts that continue others, if they need a tokenizer variant."""
    variant = None if choice.name == REFERENCE else continuation_tokenizer(request.tokenizer)
    if variant is None or variant is request.tokenizer:
        return choice
    control = request.control_in_text
    load = request.engines.share(REFERENCE, variant, control_in_text=control, n_threads=1)
    of_variant = replace(request, tokenizer=variant, reference=load, asked=choice.name)
    try:
        found = find_exact_engine(of_variant, sample, timed=False)
    except TokenizerError:
        return replace(choice, continuation=Continuation(REFERENCE))
    return replace(choice, continuation=Continuation(found.name, found.differs))


def find_exact_engine(
    request: EngineRequest,
    sample: Callable[[], CorpusSample],
    *,
    timed: bool,
    groups: Sequence[Group] | None = None,
) -> EngineChoice:
    """Try engines and return the fastest exact one, or the reference if there is none.

    An engine is compared with the reference on all characters, unless an earlier run did that, on
    hostile texts and on a sample of the corpus, which `sample` reads while engines load. If they
    are not `timed`, the first exact one is taken. `groups`: see `Scan`.

    Raises:
        TokenizerError: the engine asked for is missing, refuses the tokenizer or is not exact.
    """
    asked, tokenizer = request.asked, request.tokenizer
    if asked == REFERENCE:
        return _reference_choice(request, "asked for")
    reference = cache(request.reference)

    @cache
    def expected() -> Expected:
        return encode_expected(tokenizer, reference(), sample())

    scan = Scan(tokenizer, reference, request.control_in_text, groups)
    trial = Trial()
    for names in _rounds(asked, timed=timed):
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
            timed=timed,
            may_refuse=asked == "auto",
        )
        if trial.proven:
            break
    if asked != "auto" and not trial.proven:
        raise TokenizerError(
            f"{tokenizer.name}: engine {asked} cannot be used: {trial.refused[asked]}"
        )
    return _best(request, expected(), trial, timed=timed)


def _best(request: EngineRequest, expected: Expected, trial: Trial, *, timed: bool) -> EngineChoice:
    """Return the fastest of the exact engines, or the reference."""
    n_checked = len(expected.texts)
    reference_speed = {REFERENCE: expected.mb_per_s} if expected.mb_per_s else {}
    if not trial.proven:
        choice = _reference_choice(request, NO_FAST_ENGINE)
        return replace(choice, n_checked=n_checked, mb_per_s=reference_speed, refused=trial.refused)
    best = max(trial.proven, key=lambda name: trial.mb_per_s.get(name, 0.0))
    return EngineChoice(
        best,
        engine_version(best, request.tokenizer),
        _reason(best, request, timed=timed),
        n_checked,
        trial.mb_per_s if best in FAST_ENGINES else reference_speed | trial.mb_per_s,
        trial.refused,
        reference=engine_version(REFERENCE, request.tokenizer),
        scan=trial.scans.get(best),
        scan_kept=best in trial.kept,
    )


def _reference_choice(request: EngineRequest, reason: str) -> EngineChoice:
    version = engine_version(REFERENCE, request.tokenizer)
    return EngineChoice(REFERENCE, version, reason, reference=version)


def _reason(best: str, request: EngineRequest, *, timed: bool) -> str:
    if request.asked == "auto" and best not in FAST_ENGINES:
        return NO_FAST_ENGINE
    untimed = "asked for" if request.asked != "auto" else "first exact"
    reason = "fastest on a sample" if timed else untimed
    if request.tokenizer.rewrites and best in FAST_ENGINES:
        reason += f"; takes the tokenizer in other words: {', '.join(request.tokenizer.rewrites)}"
    return reason


def _rounds(asked: str, *, timed: bool) -> list[Sequence[str]]:
    """Return the engines of each round; those of one round load side by side and are timed."""
    if asked != "auto":
        return [(asked,)]
    first: list[Sequence[str]] = [FAST_ENGINES] if timed else [(name,) for name in FAST_ENGINES]
    return [*first, FALLBACK_ENGINES]
