"""Chooses the engine of a run, or remembers what was chosen on this machine."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from tokmill.dataset.canonical import canonical_json, sha256_hex
from tokmill.engines.choice import Continuation, EngineChoice
from tokmill.engines.engine import (
    FAST_ENGINES,
    REFERENCE,
    engine_version,
    is_installed,
    load_engine,
)
from tokmill.engines.trial.choose import choose_engine
from tokmill.engines.trial.compare import PARITY_BYTES, CorpusSample
from tokmill.engines.trial.engine_process import TIMED_OUT
from tokmill.engines.trial.remembered import KeptScans, choice_key, remember, remembered
from tokmill.errors import TokenizerError
from tokmill.run.prepare import sample
from tokmill.tokenizer.continuation import continuation_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokmill.engines.engine import Engine
    from tokmill.run.prepare import Prepared

TIMED_FROM_BYTES = 128 << 20
"""Below this much input the first exact engine is taken: timing both costs more than it saves."""

TIMED_FROM_BYTES_PER_ID = 2 << 10
"""The same for each id of the vocabulary, which is what the engines' loading takes its time for."""

TIMED_SAMPLE_BYTES = 4 << 20

SCANNED_FROM_BYTES = 32 << 20
"""Below this much input the reference is done before another engine is compared with it on all
characters, which takes 5 to 10 s on two cores; one that was compared before may be taken."""

TRIED_FROM_BYTES = 4 << 20
"""Below this the reference is done before another engine has loaded in a process of its own."""


def choose(prepared: Prepared, reference: Callable[[], Engine], n_threads: int) -> EngineChoice:
    """Choose the engine for a corpus.

    A corpus of some size has the candidates timed on a sample of its own; for less, the first
    exact one will do. What was found on this machine is remembered, but for the comparison with the
    reference on a sample, which every run makes. For very little text no engine is tried.
    """
    config = prepared.config
    asked, control = config.run.engine, config.tokenizer.control_tokens_in_text
    if asked == "auto" and (reason := _too_little(prepared, control)):
        version = engine_version(REFERENCE, prepared.tokenizer)
        return EngineChoice(REFERENCE, version, reason, reference=version)
    n_bytes = sum(file.n_bytes for file in prepared.files)
    per_id = TIMED_FROM_BYTES_PER_ID * prepared.tokenizer.vocab_size
    timed = asked == "auto" and n_bytes >= max(TIMED_FROM_BYTES, per_id)

    @cache
    def take() -> CorpusSample:
        found = sample(prepared, TIMED_SAMPLE_BYTES if timed else PARITY_BYTES, at_random=timed)
        text_bytes = n_bytes * found.text_bytes // max(1, found.input_bytes)
        return CorpusSample(found.texts, text_bytes, found.new_share(n_bytes) if timed else 1.0)

    choice = _remembered_or_new(prepared, reference, take, n_threads, timed=timed)
    return with_continuation(choice, prepared, take)


def _remembered_or_new(
    prepared: Prepared,
    reference: Callable[[], Engine],
    take: Callable[[], CorpusSample],
    n_threads: int,
    *,
    timed: bool,
) -> EngineChoice:
    config = prepared.config
    asked, control = config.run.engine, config.tokenizer.control_tokens_in_text
    corpus = [[file.path, file.n_bytes, file.mtime_ns] for file in prepared.files] if timed else []
    key = choice_key(
        prepared.tokenizer, control, asked, str(n_threads), sha256_hex(canonical_json(corpus))
    )

    def find(engine: str, *, timed: bool) -> EngineChoice:
        return choose_engine(
            prepared.tokenizer,
            reference,
            take,
            asked=engine,
            control_in_text=control,
            n_threads=n_threads,
            timed=timed,
        )

    known = _known(key)
    if known is not None and known.name == REFERENCE:
        return replace(known, n_checked=0)
    if known is not None:
        with suppress(TokenizerError):  # of this corpus it gives other ids: then choose anew
            found = find(known.name, timed=False)
            return replace(
                found, reason=known.reason, mb_per_s=known.mb_per_s, refused=known.refused
            )
    choice = find(asked, timed=timed)
    if not any(reason.startswith(TIMED_OUT) for reason in choice.refused.values()):
        remember(key, choice.as_json())
    return choice


def _known(key: str) -> EngineChoice | None:
    known = remembered(key)
    if known is not None:
        with suppress(TypeError):  # kept by another version
            return EngineChoice.from_json(known)
    return None


def _too_little(prepared: Prepared, control: str) -> str:
    """Return why a corpus is not worth trying an engine on, or ''."""
    n_bytes = sum(file.n_bytes for file in prepared.files)
    if any(file.path == "-" for file in prepared.files) or n_bytes >= SCANNED_FROM_BYTES:
        return ""
    if n_bytes >= TRIED_FROM_BYTES:
        kept = KeptScans(prepared.tokenizer, control)
        found = [kept.find(name) for name in FAST_ENGINES if is_installed(name)]
        if any(scan is not None and not scan.refused for scan in found):
            return ""
    return "quicker than proving another engine for so little text"


def with_continuation(
    choice: EngineChoice, prepared: Prepared, take: Callable[[], CorpusSample]
) -> EngineChoice:
    """Add the engine for text that continues text, where SFT encodes that with another variant."""
    if prepared.config.sft is None or choice.name == REFERENCE:
        return choice
    variant = continuation_tokenizer(prepared.tokenizer)
    if variant is None or variant is prepared.tokenizer:
        return choice
    control = prepared.config.tokenizer.control_tokens_in_text
    try:
        found = choose_engine(
            variant,
            cache(partial(load_engine, REFERENCE, variant, control_in_text=control, n_threads=1)),
            take,
            asked=choice.name,
            control_in_text=control,
            n_threads=1,
            timed=False,
        )
    except TokenizerError:
        return replace(choice, continuation=Continuation(REFERENCE))
    return replace(choice, continuation=Continuation(found.name, found.differs))
