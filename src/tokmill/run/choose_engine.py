"""Choose the engine of a run; `engines.choose` compares and times them on a sample of its input."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tokmill.engines.choose import Corpus, CorpusSample, EngineRequest, choose_engine
from tokmill.engines.engine import REFERENCE
from tokmill.run.prepare import sample
from tokmill.sources.formats import format_named

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokmill.engines.choice import EngineChoice
    from tokmill.engines.engine import Engine
    from tokmill.run.prepare import Prepared


def choose_run_engine(
    prepared: Prepared,
    reference: Callable[[], Engine],
    n_threads: int,
    note: Callable[[str], None] = lambda _: None,
) -> EngineChoice:
    """Return the engine of a run; `reference` loads its reference engine.

    `note` gets lines on what is compared.

    Raises:
        TokenizerError: the engine asked for is missing, refuses the tokenizer or is not exact.
    """
    config = prepared.config
    request = EngineRequest(
        prepared.tokenizer,
        reference,
        config.run.engine,
        config.tokenizer.control_tokens_in_text,
        n_threads,
        prepared.engines,
        note,
    )
    choice = choose_engine(request, corpus_of(prepared), has_continuations=config.sft is not None)
    names = {REFERENCE, choice.name}
    prepared.engines.keep(names | ({choice.continuation.name} if choice.continuation else set()))
    return choice


def corpus_of(prepared: Prepared) -> Corpus:
    """Return the input of a run, as far as the choice of its engine depends on it."""
    files = prepared.files
    n_bytes = sum(file.n_bytes for file in files)

    @cache
    def read(limit_bytes: int) -> CorpusSample:
        taken = sample(prepared, limit_bytes)
        return CorpusSample(taken.texts, taken.corpus_bytes)

    return Corpus(
        n_bytes,
        any(file.path == "-" for file in files),
        read,
        any(file.compression or not format_named(file.format).has_byte_ranges for file in files),
    )
