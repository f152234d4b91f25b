"""Chooses the engine of a run: exact first, then fastest on this corpus.

1. `comparison` says on which characters an engine differs: their documents go to the reference.
2. In every run, before anything is written, an engine must encode the hostile texts, texts of its
   vocabulary and a sample of this corpus like the reference.
3. With much text all exact engines are timed on the same 4 MiB of the corpus. With less the first
   exact one is taken, since to load the others takes longer than the fastest saves; with little,
   the reference.

The choice goes into the plan, which workers and resumed runs obey.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from tokmill.engines.choice import CharacterComparison, Continuation, EngineChoice
from tokmill.engines.comparison import (
    compare_engines,
    is_encoded_by_bpe,
    known_comparison,
    token_texts,
)
from tokmill.engines.engine import FAST_ENGINES, REFERENCE, engine_version, is_installed
from tokmill.engines.loaded import EngineStore
from tokmill.engines.routing import CharacterFinder, CharacterSet, RoutedEngine
from tokmill.engines.spot_check import describe_difference
from tokmill.engines.texts import hostile_texts, in_lines
from tokmill.errors import TokenizerError, TokmillError
from tokmill.offsets import byte_offsets, split_by_bytes
from tokmill.tokenizer.continuation import continuation_tokenizer
from tokmill.tokenizer.control_tokens import added_tokens
from tokmill.tokenizer.tokenizer_json import is_panic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from tokmill.engines.engine import Engine
    from tokmill.tokenizer.tokenizer import Tokenizer

LEAST_BYTES = 8 << 20
"""With less text the reference is done before another engine has loaded and been compared."""

TIMED_FROM_BYTES = 16 << 20
TIMED_FROM_BYTES_PER_ID = 1 << 10
"""With less input, and less for each id of the vocabulary, the first exact engine is taken: to load
the other one, for up to 1.7 s with 150,000 ids, takes longer than the faster one saves."""

TIMED_BYTES = 4 << 20
SAMPLE_BYTES = 512 << 10
"""Corpus text that an engine must encode like the reference."""

MOST_ROUTED = 0.5
"""An engine that sends more of the text to the reference is hardly faster than the reference."""

_TOKENS = 1 << 13
"""Tokens of the vocabulary whose texts are compared in every run."""

_STREAM_BYTES = 1 << 30
"""Assumed for standard input."""

FASTEST = "fastest on a sample of this corpus"
FIRST = "the first exact one: too little text to time others"
ONLY_ONE = "the only exact fast one"
LITTLE = "quicker than loading another engine for so little text"
NO_FAST_ENGINE = "no fast engine gives its ids here"
NO_BPE = "no fast engine encodes a tokenizer of this kind"


@dataclass(frozen=True, slots=True)
class CorpusSample:
    """Documents spread over a corpus; `corpus_bytes`: text in all of it."""

    texts: Sequence[str]
    corpus_bytes: int = 0


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """The settings that decide about the engine of a run.

    `reference`: loads the reference engine of the tokenizer. `asked`: `auto`, or the name of an
    engine, which then must be exact or the run fails. `control_in_text`: see `load_engine`.
    `n_threads`: threads that the engine will have. `engines`: keeps those that this process loads.
    `note` gets a line on what is compared.
    """

    tokenizer: Tokenizer
    reference: Callable[[], Engine]
    asked: str
    control_in_text: str
    n_threads: int
    engines: EngineStore = field(default_factory=EngineStore)
    note: Callable[[str], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Corpus:
    """The input of a run.

    `n_bytes`: as it is stored. `is_stream`: standard input, of unknown size. `sample`: reads about
    so many bytes of documents, at random places. `is_packed`: the text can be much larger than
    `n_bytes`, as in compressed files and in Parquet.
    """

    n_bytes: int
    is_stream: bool
    sample: Callable[[int], CorpusSample]
    is_packed: bool = False

    @property
    def text_bytes(self) -> int:
        """Return about how many bytes of text there are; reads a sample of packed input."""
        if self.is_stream:
            return _STREAM_BYTES
        return self.sample(SAMPLE_BYTES).corpus_bytes if self.is_packed else self.n_bytes


class ComparisonCost(NamedTuple):
    """What choosing an engine takes: wall seconds, and memory of the process tree at its peak.

    The memory includes the reference, which is loaded in any case, but not the interpreter.
    """

    seconds: float
    memory_bytes: int


def choose_engine(
    request: EngineRequest, corpus: Corpus, *, has_continuations: bool
) -> EngineChoice:
    """Choose the engine for a corpus.

    `has_continuations`: some texts continue others and may need an engine of their own (SFT).

    Raises:
        TokenizerError: the engine asked for is missing, refuses the tokenizer or is not exact.
    """
    if request.asked == REFERENCE:
        return _reference_choice(request, "asked for")
    is_auto = request.asked == "auto"
    n_bytes = corpus.text_bytes
    if is_auto and n_bytes < LEAST_BYTES:
        return _reference_choice(request, LITTLE)
    if is_auto and not is_encoded_by_bpe(request.tokenizer):
        return _reference_choice(request, NO_BPE)
    names = FAST_ENGINES if is_auto else (request.asked,)
    is_timed = is_auto and not corpus.is_stream and is_worth_timing(request.tokenizer, n_bytes)
    choice = _Trial(request, corpus, names, is_timed=is_timed).choice()
    if not is_auto and choice.name == REFERENCE:
        reason = choice.refused[request.asked]
        raise TokenizerError(
            f"{request.tokenizer.name}: engine {request.asked} cannot be used: {reason}"
        )
    return _with_continuation(choice, request, corpus) if has_continuations else choice


def comparison_cost(
    tokenizer: Tokenizer, asked: str, text_bytes: int, n_threads: int
) -> ComparisonCost:
    """Return about what `choose_engine` takes, an upper value.

    `asked`: the setting of the engine. `text_bytes`: of the corpus. Measured with 6,000 to 150,000
    ids on two busy cores of an AMD EPYC, 2026-11-25.
    """
    thousands = tokenizer.vocab_size / 1000
    reference = ComparisonCost(0.0, int((40 + 0.6 * thousands) * (1 << 20)))
    is_auto = asked == "auto"
    is_small = text_bytes < LEAST_BYTES or not is_encoded_by_bpe(tokenizer)
    if asked == REFERENCE or (is_auto and is_small):
        return reference
    names = [name for name in (FAST_ENGINES if is_auto else [asked]) if is_installed(name)]
    new = [name for name in names if known_comparison(tokenizer, name) is None]
    if is_auto and not is_worth_timing(tokenizer, text_bytes):
        names = names[:1]
    seconds, megabytes = 0.6, 100.0
    for name in names:
        load_s, loaded = _LOADING.get(name, _LOADING["fastokens"])
        seconds, megabytes = seconds + load_s * thousands, megabytes + 60 + loaded * thousands
    if new:  # texts and a vocabulary of ours here, and a process of 200 MB for each engine
        seconds += 16.0 / min(2, n_threads)
        megabytes = max(megabytes, 250 + 200 * len(new))
    return ComparisonCost(seconds, reference.memory_bytes + int(megabytes * (1 << 20)))


_LOADING = {"gigatoken": (0.006, 0.9), "fastokens": (0.014, 1.9)}
"""Of engines: seconds and MiB for 1,000 ids of the vocabulary."""


def is_worth_timing(tokenizer: Tokenizer, text_bytes: int) -> bool:
    """Return whether engines are timed for so much text."""
    return text_bytes >= max(TIMED_FROM_BYTES, TIMED_FROM_BYTES_PER_ID * tokenizer.vocab_size)


def _with_continuation(
    choice: EngineChoice, request: EngineRequest, corpus: Corpus
) -> EngineChoice:
    """Add the engine for texts that continue others, if they need a tokenizer variant."""
    variant = None if choice.name == REFERENCE else continuation_tokenizer(request.tokenizer)
    if variant is None or variant is request.tokenizer:
        return choice
    control = request.control_in_text
    load = request.engines.share(REFERENCE, variant, control_in_text=control, n_threads=1)
    of_variant = replace(request, tokenizer=variant, reference=load, asked=choice.name)
    again = _Trial(of_variant, corpus, (choice.name,), is_timed=False).choice()
    return replace(choice, continuation=Continuation(again.name, again.routed))


def _reference_choice(request: EngineRequest, reason: str) -> EngineChoice:
    version = engine_version(REFERENCE, request.tokenizer)
    return EngineChoice(REFERENCE, version, reason, reference=version)


class _Trial:
    """Engines that are compared with the reference on one corpus."""

    def __init__(
        self, request: EngineRequest, corpus: Corpus, names: Sequence[str], *, is_timed: bool
    ) -> None:
        self._request, self._is_timed = request, is_timed
        self._sample = corpus.sample(TIMED_BYTES if is_timed else SAMPLE_BYTES)
        self._refused = {name: "not installed" for name in names if not is_installed(name)}
        self._names = [name for name in names if name not in self._refused]
        self._known_before: set[str] = set()
        self._reference_mb_per_s = 0.0

    def choice(self) -> EngineChoice:
        """Return the choice of the fastest engine that is exact; the reference if none is."""
        request, comparisons = self._request, self._comparisons()
        usable = [name for name in self._names if self._is_usable(name, comparisons[name])]
        exact: dict[str, RoutedEngine] = {}
        for names in [usable] if self._is_timed else [[name] for name in usable]:
            exact |= self._exact(names, comparisons)
            if exact:
                return self._best(exact, comparisons)
        speeds = {REFERENCE: self._reference_mb_per_s} if self._reference_mb_per_s else {}
        choice = _reference_choice(request, NO_FAST_ENGINE)
        return replace(choice, mb_per_s=speeds, refused=self._refused)

    def _exact(
        self, names: Sequence[str], comparisons: Mapping[str, CharacterComparison]
    ) -> dict[str, RoutedEngine]:
        """Load engines side by side, and return those that encode all texts like the reference."""
        if not names:
            return {}
        self._request.note(f"comparing {' and '.join(names)} with the reference on this corpus")
        with ThreadPoolExecutor(len(names)) as pool:  # fastokens loads beside other threads
            loading = [pool.submit(self._load, name, comparisons[name]) for name in names]
            _ = self._expected
            loaded = dict(zip(names, [one.result() for one in loading], strict=True))
        return {
            name: engine
            for name, engine in loaded.items()
            if engine is not None and self._is_exact(name, engine)
        }

    def _comparisons(self) -> dict[str, CharacterComparison]:
        """Return what is known of the characters on which engines differ; compare the others."""
        request = self._request
        known = {name: known_comparison(request.tokenizer, name) for name in self._names}
        missing = [name for name, comparison in known.items() if comparison is None]
        self._known_before = set(known).difference(missing)
        new = (
            compare_engines(request.tokenizer, missing, request.n_threads, request.note)
            if missing
            else {}
        )
        return {name: known[name] or new[name] for name in self._names}

    def _is_usable(self, name: str, comparison: CharacterComparison) -> bool:
        """Return whether routing some characters makes an engine exact, and is worth it."""
        if comparison.refused:
            self._refused[name] = comparison.refused
            return False
        share = _share_with(comparison.routed, self._sample.texts)
        if self._request.asked == "auto" and share > MOST_ROUTED:
            self._refused[name] = (
                f"its ids differ from the reference's on {len(comparison.differs)} characters, and "
                f"{share:.0%} of a sample of this corpus would have to go to the reference"
            )
            return False
        return True

    def _load(self, name: str, comparison: CharacterComparison) -> RoutedEngine | None:
        """Load an engine; None, and the reason in `_refused`, if it refuses the tokenizer."""
        request = self._request
        load = request.engines.share(
            name,
            request.tokenizer,
            control_in_text=request.control_in_text,
            n_threads=request.n_threads,
        )
        try:
            return RoutedEngine(load(), request.reference, comparison.routed)
        except TokmillError as error:
            self._refused[name] = str(error)
        except BaseException as error:
            if not is_panic(error):
                raise
            self._refused[name] = " ".join(str(error).split())[:200]
        return None

    @cached_property
    def _expected(self) -> tuple[list[str], list[npt.NDArray[np.uint32]]]:
        """Return the texts that every engine must encode like the reference, and those ids."""
        tokenizer, reference = self._request.tokenizer, self._request.reference()
        texts = hostile_texts(list(added_tokens(tokenizer)))
        texts += ["\n".join(lines) for lines in in_lines(token_texts(tokenizer, _TOKENS))]
        some = _spread(self._sample.texts, SAMPLE_BYTES)
        ids = _ids(reference, texts)
        start_s = time.perf_counter()
        ids += _ids(reference, some)
        seconds, n_bytes = time.perf_counter() - start_s, sum(len(text.encode()) for text in some)
        self._reference_mb_per_s = round(n_bytes / seconds / 1e6, 1) if some else 0.0
        return texts + some, ids

    def _is_exact(self, name: str, engine: RoutedEngine) -> bool:
        """Return whether an engine has the ids of the reference; else say why in `_refused`."""
        texts, expected = self._expected
        n_built_in = len(texts) - len(_spread(self._sample.texts, SAMPLE_BYTES))
        for i, (ids, wanted) in enumerate(zip(_ids(engine, texts), expected, strict=True)):
            if not np.array_equal(ids, wanted):
                is_built_in = i < n_built_in
                what = (
                    f"the built-in text {texts[i][:60]!r}" if is_built_in else "a sampled document"
                )
                self._refused[name] = f"its {describe_difference(ids, wanted)} of {what}"
                return False
        return True

    def _best(
        self, exact: dict[str, RoutedEngine], comparisons: dict[str, CharacterComparison]
    ) -> EngineChoice:
        """Return the fastest of the exact engines, if there is text to time them on."""
        request, texts = self._request, self._sample.texts
        n_threads = request.n_threads
        is_timed = self._is_timed and len(texts) > 1
        speeds = {
            name: round(_mb_per_s(engine, texts, n_threads), 1)
            for name, engine in (exact.items() if is_timed else ())
        }
        name = max(speeds, key=lambda one: speeds[one]) if speeds else next(iter(exact))
        if request.asked != "auto":
            reason = "asked for"
        elif len(exact) == 1 and self._is_timed:
            reason = ONLY_ONE
        else:
            reason = FASTEST if speeds else FIRST
        if rewrites := ", ".join(request.tokenizer.rewrites):
            reason += f"; takes the tokenizer in other words: {rewrites}"
        return EngineChoice(
            name,
            engine_version(name, request.tokenizer),
            reason,
            n_checked=len(self._expected[0]),
            mb_per_s=speeds,
            refused=self._refused,
            reference=engine_version(REFERENCE, request.tokenizer),
            scan=comparisons[name],
            scan_kept=name in self._known_before,
        )


def _ids(engine: Engine, texts: Sequence[str]) -> list[npt.NDArray[np.uint32]]:
    batch = engine.encode(pa.array(texts, pa.large_string()))
    bounds = batch.offsets.tolist()
    return [batch.ids[start:stop] for start, stop in pairwise(bounds)]


def _spread(texts: Sequence[str], n_bytes: int) -> list[str]:
    """Return about `n_bytes` of texts, evenly spread."""
    total = sum(map(len, texts))
    return list(texts[:: max(1, -(-total // n_bytes))])


def _share_with(characters: CharacterSet, texts: Sequence[str]) -> float:
    """Return the share of texts, by characters, that contains a character of a set."""
    if not characters or not texts:
        return 0.0
    holding = CharacterFinder(characters).documents(pa.array(texts, pa.large_string()))
    return sum(len(texts[i]) for i in holding.tolist()) / max(1, sum(map(len, texts)))


def _mb_per_s(engine: RoutedEngine, texts: Sequence[str], n_threads: int) -> float:
    """Return the speed on the second half of texts, when caches are no longer empty.

    Called as in a run: from all its threads, or from one. The better of two quarters counts, by
    CPU time: other processes can only add to it.
    """
    middle, last = len(texts) // 2, len(texts) * 3 // 4
    measure = partial(_seconds_per_byte, engine, n_threads)
    measure(texts[:middle])
    quarters = [some for some in (texts[middle:last], texts[last:]) if some]
    return 1e-6 * n_threads / max(1e-12, min(map(measure, quarters)))


def _seconds_per_byte(engine: RoutedEngine, n_threads: int, texts: Sequence[str]) -> float:
    """Return the CPU seconds of an engine for a byte of texts, divided among its callers."""
    text = pa.array(texts, pa.large_string())
    n_callers = n_threads if engine.concurrent else 1
    offsets = byte_offsets(text)
    n_bytes = max(1, int(offsets[-1] - offsets[0]))
    batches = list(split_by_bytes(text, -(-n_bytes // n_callers)))
    with ThreadPoolExecutor(n_callers) as pool:
        start_s = time.process_time()
        list(pool.map(engine.encode, batches))
        return (time.process_time() - start_s) / n_bytes
