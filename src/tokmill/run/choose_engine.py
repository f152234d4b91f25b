"""Choose the engine of a run; `engines.trial.choose` compares and times them on a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.engines.engine import REFERENCE
from tokmill.engines.trial.choose import Corpus, EngineRequest, choose_engine
from tokmill.engines.trial.compare import CorpusSample
from tokmill.run.prepare import sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokmill.engines.choice import EngineChoice
    from tokmill.engines.engine import Engine
    from tokmill.run.prepare import Prepared


def choose_run_engine(
    prepared: Prepared, reference: Callable[[], Engine], n_threads: int
) -> EngineChoice:
    """Return the engine of a run; `reference` loads its reference engine."""
    config, files = prepared.config, prepared.files
    n_bytes = sum(file.n_bytes for file in files)

    def read(limit_bytes: int, at_random: bool) -> CorpusSample:
        found = sample(prepared, limit_bytes, at_random=at_random)
        text_bytes = n_bytes * found.text_bytes // max(1, found.input_bytes)
        new_share = found.new_share(n_bytes) if at_random else 1.0
        return CorpusSample(found.texts, text_bytes, new_share)

    choice = choose_engine(
        EngineRequest(
            prepared.tokenizer,
            reference,
            config.run.engine,
            config.tokenizer.control_tokens_in_text,
            n_threads,
            prepared.engines,
        ),
        Corpus(
            n_bytes,
            [(file.path, file.n_bytes, file.mtime_ns) for file in files],
            any(file.path == "-" for file in files),
            read,
        ),
        has_continuations=config.sft is not None,
    )
    names = {REFERENCE, choice.name}
    prepared.engines.keep(names | ({choice.continuation.name} if choice.continuation else set()))
    return choice
