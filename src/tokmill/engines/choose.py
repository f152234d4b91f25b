"""Chooses the engine of a run: exact first, then fastest on this corpus.

1. `comparison` says on which characters an engine differs, and `added_tokens` which added tokens it
   does not find as the reference does: their documents go to the reference.
2. In every run, before anything is written, an engine must encode the hostile texts, texts of its
   vocabulary and a sample of this corpus like the reference.
3. With much text exact engines are timed on the same 4 MiB of the corpus, if another one may save
   what it takes to load. The result is kept for later runs with such text, which take the engine
   that has loaded and encoded first. With less and no kept result the first exact one is taken;
   with little, the reference.

The choice goes into the plan, which workers and resumed runs obey.
"""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokmill.cache import keep, kept
from tokmill.engines.added_tokens import AddedTokens, for_engine
from tokmill.engines.choice import CharacterComparison, Continuation, EngineChoice
from tokmill.engines.comparison import (
    compare_engines,
    divided_added_tokens,
    known_comparison,
    model_type,
)
from tokmill.engines.engine import (
    ENGINES_OF_MODEL,
    FAST_ENGINES,
    REFERENCE,
    engine_version,
    is_installed,
)
from tokmill.engines.loaded import EngineStore
from tokmill.engines.routing import CharacterSet, RoutedEngine, Routes, ids_of_each
from tokmill.engines.spot_check import describe_difference
from tokmill.engines.texts import built_in_texts
from tokmill.errors import TokenizerError, TokmillError
from tokmill.offsets import byte_offsets, split_by_bytes
from tokmill.tokenizer.continuation import continuation_tokenizer
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from tokmill.engines.engine import Engine
    from tokmill.tokenizer.tokenizer import Tokenizer

    Ids = npt.NDArray[np.uint32]

LEAST_BYTES = 8 << 20
"""With less text the reference is done before another engine has loaded and been compared."""

TIMED_FROM_BYTES = 32 << 20
"""With less input and no kept speeds the first exact engine is taken: to load the other one, for up
to 1.8 s with 150,000 ids, takes longer than the faster one saves."""

TIMED_BYTES = 4 << 20
WARM_BYTES, WARM = 256 << 20, 1.25
"""With so much text for each thread gigatoken, whose caches of words fill for long, encodes so much
more than its timing says, compared with fastokens (gpt2, 1 GB of English, two cores of an AMD EPYC:
250 MB/s a thread where 111 were timed; fastokens 208 and 116)."""

SAMPLE_BYTES = 512 << 10
LEAST_SAMPLE_BYTES, SAMPLE_SHARE = 128 << 10, 1 / 64
"""Corpus text that an engine must encode like the reference: at most, and of a small corpus a share
of it, but not less than some. The reference needs 0.3 s of processor time for a MB."""

_LOAD_S, _MOST_SAVED = 0.0085, 0.5
"""Processor seconds that the slower engine takes to load 1,000 ids, and the share of those for the
text that another engine saves at most."""

_MOST_ROUTED = 0.9
"""Share of sampled documents; with more for the reference, another engine only costs memory."""

_STREAM_BYTES = 1 << 30
"""Assumed for standard input."""

FASTEST = "fastest on a sample of this corpus"
FASTEST_BEFORE = "done first with so much text, by an earlier run"
FIRST = "the first exact one: too little text to time others"
ONLY_ONE = "the only exact fast one"
LITTLE = "quicker than loading another engine for so little text"
NO_FAST_ENGINE = "no fast engine gives its ids here"
NO_ENGINE = "no fast engine encodes a tokenizer of this kind"
NO_WORDPIECE = f"{NO_ENGINE} without nanotoken: pip install 'tokmill[wordpiece]'"


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """What decides about the engine of a run: its settings, and its input.

    `asked`: `auto`, or the name of an engine, which then must be exact or the run fails.
    `control_in_text`: see `load_engine`. `n_threads`: threads that the engine will have.
    `n_bytes`: about how much text there is; None for standard input. `sample`: reads about so many
    bytes of documents, at random places. `engines`: keeps those that this process loads. `note`
    gets a line on what is compared.
    """

    tokenizer: Tokenizer
    asked: str
    control_in_text: str
    n_threads: int
    n_bytes: int | None
    sample: Callable[[int], Sequence[str]]
    engines: EngineStore = field(default_factory=EngineStore)
    note: Callable[[str], None] = lambda _: None

    def load_reference(self) -> Engine:
        """Return the reference for the tokenizer; see `EngineStore`."""
        return self.engines.load(REFERENCE, self.tokenizer, control_in_text=self.control_in_text)


def choose_engine(request: EngineRequest, *, has_continuations: bool) -> EngineChoice:
    """Choose the engine of a run.

    `has_continuations`: some texts continue others and may need an engine of their own (SFT).

    Raises:
        TokenizerError: the engine asked for is missing, refuses the tokenizer or is not exact.
    """
    if request.asked == REFERENCE:
        return _reference_choice(request, "asked for")
    is_auto = request.asked == "auto"
    n_bytes = request.n_bytes
    if is_auto and n_bytes is not None and n_bytes < LEAST_BYTES:
        return _reference_choice(request, LITTLE)
    names = _auto_engines(request.tokenizer) if is_auto else (request.asked,)
    if not names:
        is_wordpiece = model_type(request.tokenizer) == "WordPiece"
        return _reference_choice(request, NO_WORDPIECE if is_wordpiece else NO_ENGINE)
    is_timed = is_auto and n_bytes is not None and n_bytes >= TIMED_FROM_BYTES
    choice = _Trial(request, is_timed=is_timed).choice(names)
    if not is_auto and choice.name == REFERENCE:
        reason = choice.refused[request.asked]
        raise TokenizerError(
            f"{request.tokenizer.name}: engine {request.asked} cannot be used: {reason}"
        )
    variant = continuation_tokenizer(request.tokenizer) if has_continuations else None
    if choice.name == REFERENCE or variant is None or variant is request.tokenizer:
        return choice
    of_variant = replace(request, tokenizer=variant, asked=choice.name)
    continued = _Trial(of_variant, is_timed=False).choice([choice.name])
    differs = CharacterSet() if continued.scan is None else continued.scan.routed
    return replace(choice, continuation=Continuation(continued.name, differs, continued.added))


def comparison_cost(
    tokenizer: Tokenizer, asked: str, text_bytes: int, n_threads: int
) -> tuple[float, int]:
    """Return about what `choose_engine` takes: wall seconds, and bytes of memory; upper values.

    `asked`: the setting of the engine. `text_bytes`: of the corpus. The memory, of the process tree
    at its peak, includes the reference, which is loaded in any case, but not the interpreter.
    Measured with 6,000 to 150,000 ids on two busy cores of an AMD EPYC, 2026-11-25.
    """
    thousands = tokenizer.vocab_size / 1000
    reference_mb = 40 + 0.6 * thousands
    is_auto = asked == "auto"
    asked_names = _auto_engines(tokenizer) if is_auto else (asked,)
    is_small = is_auto and text_bytes < LEAST_BYTES
    if asked == REFERENCE or is_small or not asked_names:
        return 0.0, int(reference_mb * (1 << 20))
    names = [name for name in asked_names if is_installed(name)]
    uncompared = [name for name in names if known_comparison(tokenizer, name) is None]
    # Of 1,000 ids. Without timing one engine is loaded, but which one an earlier run decides.
    load_s = [0.006 if name == "gigatoken" else 0.014 for name in names]
    loaded_mb = [0.9 if name == "gigatoken" else 1.9 for name in names]
    together = sum if text_bytes >= TIMED_FROM_BYTES else max
    seconds = 0.6 + thousands * together([0.0, *load_s])
    megabytes = 100 + together([0.0, *(60 + thousands * mb for mb in loaded_mb)])
    if uncompared:  # texts and a vocabulary of ours here, and a process of 200 MB for each engine
        seconds += 16.0 / min(2, n_threads)
        megabytes = max(megabytes, 250 + 200 * len(uncompared))
    return seconds, int((reference_mb + megabytes) * (1 << 20))


def _auto_engines(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Return the engines that `auto` tries with a tokenizer; of the extras those installed."""
    names = ENGINES_OF_MODEL.get(model_type(tokenizer), ())
    return tuple(name for name in names if name in FAST_ENGINES or is_installed(name))


def _reference_choice(request: EngineRequest, reason: str) -> EngineChoice:
    version = engine_version(REFERENCE, request.tokenizer)
    return EngineChoice(REFERENCE, version, reason, reference=version)


def _rewritten(tokenizer: Tokenizer) -> str:
    """Return what the reason of a choice adds if engines get the tokenizer in other words."""
    rewrites = ", ".join(tokenizer.rewrites)
    return f"; takes the tokenizer in other words: {rewrites}" if rewrites else ""


class _Trial:
    """Engines that are compared with the reference on one corpus."""

    def __init__(self, request: EngineRequest, *, is_timed: bool) -> None:
        self._request, self._is_timed = request, is_timed
        self._n_bytes = _STREAM_BYTES if request.n_bytes is None else request.n_bytes
        self._load_s: dict[str, float] = {}
        share = max(LEAST_SAMPLE_BYTES, int(self._n_bytes * SAMPLE_SHARE))
        self._sample = _spread(request.sample(SAMPLE_BYTES), min(SAMPLE_BYTES, share))
        self._refused: dict[str, str] = {}
        self._reference_mb_per_s = 0.0
        self._added = AddedTokens()

    def choice(self, names: Sequence[str]) -> EngineChoice:
        """Return the choice of the fastest engine that is exact; the reference if none is."""
        request, tokenizer = self._request, self._request.tokenizer
        try:
            self._added = divided_added_tokens(tokenizer, parse=request.control_in_text == "parse")
        except TokenizerError as error:
            self._refused |= dict.fromkeys(names, str(error))
            _ = self._expected  # for the speed of the reference
            return self._no_fast_engine()
        known = self._known_comparisons(names)
        scans = self._new_comparisons(known)
        compared = {name: known[name] or scans[name] for name in known}
        usable = self._accepted(compared)
        key = _speeds_key(request, usable, self._sample)
        speeds_before = kept(key) or {}
        usable.sort(key=lambda name: self._seconds(name, *speeds_before.get(name, (0.0, 0.0))))
        exact, speeds = self._tried(usable, compared, speeds_before)
        if not exact:
            return self._no_fast_engine()
        if speeds:
            keep(key, {name: (speed, self._load_s[name]) for name, speed in speeds.items()})
        name = min(
            speeds or exact, key=lambda name: self._seconds(name, speeds.get(name, 0.0), 0.0)
        )
        is_fastest_before = len(speeds_before) > 1 and name == usable[0]
        is_alone = self._is_timed and {*usable} <= {*exact, *self._refused} and len(exact) == 1
        reason = self._reason(speeds, is_fastest_before=is_fastest_before, is_alone=is_alone)
        return EngineChoice(
            name,
            engine_version(name, tokenizer),
            reason + _rewritten(tokenizer),
            n_checked=len(self._expected),
            mb_per_s=speeds,
            refused=self._refused,
            reference=engine_version(REFERENCE, tokenizer),
            scan=compared[name],
            scan_kept=name not in scans,
            added=self._added,
        )

    def _known_comparisons(self, names: Sequence[str]) -> dict[str, CharacterComparison | None]:
        """Return what is known of the engines that are installed; None: not compared yet."""
        known: dict[str, CharacterComparison | None] = {}
        for name in names:
            if is_installed(name):
                known[name] = known_comparison(self._request.tokenizer, name)
            else:
                self._refused[name] = "not installed"
        return known

    def _new_comparisons(
        self, known: Mapping[str, CharacterComparison | None]
    ) -> dict[str, CharacterComparison]:
        """Compare the engines of which nothing is known with the reference, and return that."""
        fresh = [name for name, comparison in known.items() if comparison is None]
        if not fresh:
            return {}
        request = self._request
        return compare_engines(request.tokenizer, fresh, request.n_threads, request.note)

    def _accepted(self, compared: Mapping[str, CharacterComparison]) -> list[str]:
        """Return the engines that their comparison did not refuse; the others are noted."""
        accepted = []
        for name, comparison in compared.items():
            if comparison.refused:
                self._refused[name] = comparison.refused
            else:
                accepted.append(name)
        return accepted

    def _tried(
        self,
        usable: Sequence[str],
        compared: Mapping[str, CharacterComparison],
        before: Mapping[str, tuple[float, float]],
    ) -> tuple[dict[str, RoutedEngine], dict[str, float]]:
        """Return the exact engines of those tried, and the speeds of those timed now.

        `before`: what earlier runs have timed. The first exact engine is loaded; others only where
        much text is to come: fastokens takes 1.3 s to load 150,000 ids, as gigatoken needs for
        140 MB of English.
        """
        exact = self._first_exact(usable, compared)
        tried = {*exact, *before, *self._refused}
        others = [name for name in usable if name not in tried]
        if not (self._is_timed and exact and others):
            return exact, {}
        first = next(iter(exact))
        timed = {} if first in before else self._speeds(exact)
        speed = before[first][0] if first in before else timed.get(first, 0.0)
        load_s = _LOAD_S * self._request.tokenizer.vocab_size / 1000
        if self._seconds(first, speed, 0.0) * _MOST_SAVED <= load_s:
            return exact, timed
        also_exact = self._exact(others, compared)
        timed = self._speeds(also_exact)
        if timed:
            timed = {first: speed, **timed}
        return exact | also_exact, timed

    def _first_exact(
        self, names: Sequence[str], compared: Mapping[str, CharacterComparison]
    ) -> dict[str, RoutedEngine]:
        """Return the first engine that is exact, by its name; those behind it are not loaded."""
        for name in names:
            if exact := self._exact([name], compared):
                return exact
        return {}

    def _reason(
        self,
        speeds: Mapping[str, float],
        *,
        is_fastest_before: bool,
        is_alone: bool,
    ) -> str:
        """Return why an engine was chosen.

        `is_fastest_before`: by the speeds of an earlier run. `is_alone`: every other one was tried.
        """
        if self._request.asked != "auto":
            return "asked for"
        if len(speeds) > 1:
            return FASTEST
        if is_fastest_before:
            return FASTEST_BEFORE
        return ONLY_ONE if is_alone else FIRST

    def _no_fast_engine(self) -> EngineChoice:
        """Return the choice of the reference, with its speed on the sample if it encoded that."""
        choice = _reference_choice(self._request, NO_FAST_ENGINE)
        speed = self._reference_mb_per_s
        speeds = {REFERENCE: speed} if speed else {}
        return replace(choice, mb_per_s=speeds, refused=self._refused)

    def _exact(
        self, names: Sequence[str], compared: Mapping[str, CharacterComparison]
    ) -> dict[str, RoutedEngine]:
        """Load engines side by side, and return those that encode all texts like the reference."""
        if not names:
            return {}
        self._request.note(f"comparing {' and '.join(names)} with the reference on this corpus")
        _ = self._built_in  # before an engine loads: gigatoken holds Python's lock meanwhile
        with ThreadPoolExecutor(len(names) + 1) as pool:
            expected = pool.submit(lambda: self._expected)
            loading = [pool.submit(self._load, name, compared[name]) for name in names]
            expected.result()
            engines = [engine.result() for engine in loading]
        return {
            name: engine
            for name, engine in zip(names, engines, strict=True)
            if engine is not None and self._is_exact(name, engine)
        }

    def _load(self, name: str, compared: CharacterComparison) -> RoutedEngine | None:
        """Load an engine; None, and the reason in `_refused`, if it refuses the tokenizer."""
        # As in `_mb_per_s`, other processes hardly change what counts.
        request, start_s = self._request, time.thread_time()
        try:
            engine = request.engines.load(
                name,
                for_engine(request.tokenizer, self._added),
                control_in_text=request.control_in_text,
                n_threads=request.n_threads,
            )
        except TokmillError as error:
            self._refused[name] = str(error)
            return None
        self._load_s[name] = round(time.thread_time() - start_s, 2)
        routes = Routes(compared.routed) | self._added.routes
        return RoutedEngine(engine, request.load_reference, routes)

    def _seconds(self, name: str, mb_per_s: float, load_s: float) -> float:
        """Return how long an engine takes to load and to encode the corpus; unknown: for ever."""
        if name == "gigatoken" and self._n_bytes >= WARM_BYTES * self._request.n_threads:
            mb_per_s *= WARM
        return load_s + self._n_bytes / 1e6 / mb_per_s if mb_per_s else math.inf

    @cached_property
    def _built_in(self) -> list[str]:
        return built_in_texts(self._request.tokenizer)

    @cached_property
    def _expected(self) -> list[Ids]:
        """Return the ids of the reference for the built-in texts, then for the sample."""
        reference = self._request.load_reference()
        try:
            ids = list(ids_of_each(reference, self._built_in))
        except TokenizerError:  # it fails on texts that this corpus may not have
            self._built_in = [text for text in self._built_in if _encodes(reference, text)]
            ids = list(ids_of_each(reference, self._built_in))
        start_s = time.perf_counter()
        ids += ids_of_each(reference, self._sample)
        n_bytes = sum(len(text.encode()) for text in self._sample)
        self._reference_mb_per_s = round(1e-6 * n_bytes / (time.perf_counter() - start_s), 1)
        return ids

    def _is_exact(self, name: str, engine: RoutedEngine) -> bool:
        """Return whether an engine has the ids of the reference; else say why in `_refused`."""
        is_routed = engine.is_routed(pa.array(self._sample, pa.large_string()))
        is_auto = self._request.asked == "auto"
        if is_auto and is_routed.sum() > _MOST_ROUTED * len(self._sample):
            self._refused[name] = f"{is_routed.mean():.0%} of the sample would go to the reference"
            return False
        texts = self._built_in + self._sample
        encoded = ids_of_each(engine, texts)
        for i, (ids, wanted) in enumerate(zip(encoded, self._expected, strict=True)):
            if not np.array_equal(ids, wanted):
                built_in = f"the built-in text {texts[i][:60]!r}"
                what = built_in if i < len(self._built_in) else "a sampled document"
                self._refused[name] = f"its {describe_difference(ids, wanted)} of {what}"
                return False
        return True

    def _speeds(self, engines: Mapping[str, RoutedEngine]) -> dict[str, float]:
        """Return the MB/s of engines, if there is text to time them on."""
        texts, n_threads = self._request.sample(TIMED_BYTES), self._request.n_threads
        if len(texts) < 2:
            return {}
        return {
            name: round(_mb_per_s(engine, texts, n_threads), 1) for name, engine in engines.items()
        }


def _speeds_key(request: EngineRequest, names: Sequence[str], texts: Sequence[str]) -> str:
    """Return the key of kept speeds and loading times: engines rank otherwise on other scripts.

    The bytes of a character tell the scripts apart: 1 for Latin, 2 for Cyrillic, 3 for Han.
    """
    n_characters = max(1, sum(map(len, texts)))
    n_bytes = round(sum(len(text.encode()) for text in texts) / n_characters)
    versions = ", ".join(f"{name} {engine_version(name, request.tokenizer)}" for name in names)
    return (
        f"speeds and loading of {versions} with {request.tokenizer.identity}, "
        f"{plural(request.n_threads, 'thread')}, {n_bytes} bytes a character"
    )


def _encodes(reference: Engine, text: str) -> bool:
    try:
        list(ids_of_each(reference, [text]))
    except TokenizerError:
        return False
    return True


def _spread(texts: Sequence[str], n_bytes: int) -> list[str]:
    """Return about `n_bytes` of texts, evenly spread."""
    total = sum(map(len, texts))
    return list(texts[:: max(1, -(-total // n_bytes))])


def _mb_per_s(engine: RoutedEngine, texts: Sequence[str], n_threads: int) -> float:
    """Return the speed on the second half of texts, when caches are no longer empty.

    Called as in a run: from all its threads, or from one. CPU time counts, divided among the
    callers: other processes hardly change it.
    """
    n_callers = n_threads if engine.concurrent else 1
    with ThreadPoolExecutor(n_callers) as pool:
        for half in (texts[: len(texts) // 2], texts[len(texts) // 2 :]):
            text = pa.array(half, pa.large_string())
            offsets = byte_offsets(text)
            n_bytes = int(offsets[-1] - offsets[0])
            batches = list(split_by_bytes(text, max(1, -(-n_bytes // n_callers))))
            start_s = time.process_time()
            list(pool.map(engine.encode, batches))
            seconds = time.process_time() - start_s
    return 1e-6 * n_threads * n_bytes / max(1e-9, seconds)
