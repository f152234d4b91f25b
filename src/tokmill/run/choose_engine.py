"""Choose the engine of a run; `engines.trial.choose` compares and times them on a sample.

An engine that an earlier run chose may encode while it is compared; nothing is written before that.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Self

from tokmill.engines.engine import REFERENCE
from tokmill.engines.trial.candidates import Corpus, EngineRequest
from tokmill.engines.trial.choose import choose_engine
from tokmill.engines.trial.compare import CorpusSample
from tokmill.engines.trial.expected import compared_choice, expected_choice
from tokmill.run.prepare import sample
from tokmill.sources.formats import format_named
from tokmill.timing import StageTimer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokmill.engines.choice import EngineChoice
    from tokmill.engines.engine import Engine
    from tokmill.run.prepare import Prepared
    from tokmill.timing import StageSeconds


def choose_run_engine(
    prepared: Prepared,
    reference: Callable[[], Engine],
    n_threads: int,
    note: Callable[[str], None] | None = None,
) -> EngineChoice:
    """Return the engine of a run; `reference` loads its reference engine.

    `note` gets a line before a comparison that takes long.
    """
    request, corpus = _question(prepared, reference, n_threads)
    request = replace(request, note=note)
    choice = choose_engine(request, corpus, has_continuations=_is_sft(prepared))
    names = {REFERENCE, choice.name}
    prepared.engines.keep(names | ({choice.continuation.name} if choice.continuation else set()))
    return choice


class ComparedEngine:
    """A remembered engine that another thread compares with the reference, while it encodes.

    `expected`: the choice if its ids are the reference's. `seconds`: of the thread, once it is
    done. As a context manager it waits for the thread at its end.
    """

    def __init__(self, expected: EngineChoice, compare: Callable[[], EngineChoice | None]) -> None:
        self.expected = expected
        self.seconds: dict[str, StageSeconds] = {}
        self._pool = ThreadPoolExecutor(1, "tokmill-compare")
        self._found = self._pool.submit(self._timed, compare)

    def _timed(self, compare: Callable[[], EngineChoice | None]) -> EngineChoice | None:
        timer = StageTimer()
        found = compare()
        timer.end("compare")
        self.seconds = timer.seconds
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def result(self) -> EngineChoice:
        """Wait for the comparison and return the choice.

        Raises:
            OtherEngineError: other ids, so that the choice has to be made anew.
            TokmillError: the sample of the corpus cannot be read.
        """
        found = self._found.result()
        if found is None:
            raise OtherEngineError
        return found


class OtherEngineError(Exception):
    """No engine is remembered, or it does not give the ids of the reference on this corpus."""


def compare_remembered(
    prepared: Prepared, reference: Callable[[], Engine], n_threads: int
) -> ComparedEngine:
    """Begin to compare the engine that an earlier run chose.

    Raises:
        OtherEngineError: there is none.
    """
    request, corpus = _question(prepared, reference, n_threads)
    if corpus.is_stream:
        raise OtherEngineError  # what was read from it cannot be given to another engine
    is_sft = _is_sft(prepared)
    expected = expected_choice(request, corpus, has_continuations=is_sft)
    if expected is None:
        raise OtherEngineError
    return ComparedEngine(
        expected,
        lambda: compared_choice(expected, request, corpus, has_continuations=is_sft),
    )


def _is_sft(prepared: Prepared) -> bool:
    return prepared.config.sft is not None


def _question(
    prepared: Prepared, reference: Callable[[], Engine], n_threads: int
) -> tuple[EngineRequest, Corpus]:
    config, files = prepared.config, prepared.files
    n_bytes = sum(file.n_bytes for file in files)

    @cache  # engines are ranked by it, and compared on it
    def read(limit_bytes: int, at_random: bool) -> CorpusSample:
        found = sample(prepared, limit_bytes, at_random=at_random)
        text_bytes = n_bytes * found.text_bytes // max(1, found.input_bytes)
        new_share = found.new_share(n_bytes) if at_random else 1.0
        return CorpusSample(found.texts, text_bytes, new_share)

    return EngineRequest(
        prepared.tokenizer,
        reference,
        config.run.engine,
        config.tokenizer.control_tokens_in_text,
        n_threads,
        prepared.engines,
    ), Corpus(
        n_bytes,
        any(file.path == "-" for file in files),
        read,
        any(file.compression or not format_named(file.format).has_byte_ranges for file in files),
    )
