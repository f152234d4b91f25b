"""Tasks for an engine under trial: compare ids, compute fingerprints of ids, measure speed.

The module is also the child process of `EngineProcess`. Its first message is an `EngineToLoad`,
every other one the name and the arguments of a task; the answer is a result or an error.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from tokmill.children import Parent
from tokmill.engines.characters import CharacterSet
from tokmill.engines.engine import REFERENCE, load_engine
from tokmill.engines.routing import RoutedEngine
from tokmill.engines.spot_check import describe_difference
from tokmill.engines.trial.hostile_texts import hostile_texts
from tokmill.errors import TokmillError
from tokmill.offsets import byte_offsets, split_by_bytes
from tokmill.tokenizer.control_tokens import control_token_strings

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokmill.engines.engine import Engine
    from tokmill.tokenizer.tokenizer import Tokenizer

_CALL_TEXTS = 512
"""About 200 kB, of nearly as many tokens: the reference takes over 100 bytes for each."""

ANY_TOKENIZER = "the tokenizer"
"""Its name in answers: they are kept for runs that find the same tokenizer at another path."""

_PASSES = 4
"""Over known text: each thread of an engine can have a cache of its own, which has to fill."""


@dataclass(frozen=True, slots=True)
class EngineToLoad:
    """An engine and the arguments to load it with."""

    engine: str
    tokenizer: Tokenizer
    control_in_text: str
    n_threads: int


class Speed(NamedTuple):
    """CPU seconds: to load an engine; per byte of new text, and of text that it has just seen."""

    load_s: float
    new_s: float
    again_s: float


class EngineTasks:
    """The tasks, one method each, for one engine: `engine`, or one that is loaded now.

    Raises:
        TokenizerError: the engine is missing, or refuses the tokenizer.
    """

    def __init__(self, loading: EngineToLoad, engine: Engine | None = None) -> None:
        self._n_threads = loading.n_threads
        self._tokenizer = replace(loading.tokenizer, name=ANY_TOKENIZER)
        start_s = time.process_time()
        load = partial(
            load_engine,
            tokenizer=self._tokenizer,
            control_in_text=loading.control_in_text,
            n_threads=loading.n_threads,
        )
        engine = engine or load(loading.engine)
        engine.encode(pa.array(["a"], pa.large_string()))  # imports what it needs
        # As in a run, the reference encodes a text on which the engine raises.
        self._engine = RoutedEngine(engine, cache(partial(load, REFERENCE)), CharacterSet())
        self._load_s = time.process_time() - start_s

    def differences(self, texts: Sequence[str], expected: Sequence[Any]) -> dict[int, str]:
        """Return a line for each text, by index, whose ids differ from the reference's."""
        batch = self._engine.encode(pa.array(texts, pa.large_string()))
        found = {}
        for i, expected_ids in enumerate(expected):
            ids = batch.ids[batch.offsets[i] : batch.offsets[i + 1]]
            if not np.array_equal(ids, expected_ids):
                differs = describe_difference(ids, expected_ids)
                found[i] = f"its {differs} of {self._describe(texts[i])}"
        return found

    def fingerprints(self, texts: Sequence[str]) -> npt.NDArray[np.uint64]:
        """Return the fingerprints of texts."""
        return fingerprints(self._engine, texts)

    def speed(self, texts: Sequence[str], again: bool) -> Speed:
        """Measure the speed on texts: on their second half, so that caches are no longer empty.

        The better of its quarters counts: other processes can only add to the time. `again`: also
        on text that it has just seen; else that is taken to be as slow.
        """
        middle, last = len(texts) // 2, len(texts) * 3 // 4
        self._seconds_per_byte(texts[:middle])
        quarters = [some for some in (texts[middle:last], texts[last:]) if some]
        new_s = min(map(self._seconds_per_byte, quarters), default=0.0)
        passes = range(_PASSES if again else 0)
        again_s = [self._seconds_per_byte(texts[middle:]) for _ in passes]
        return Speed(self._load_s, new_s, min([new_s, *again_s]))

    def _describe(self, text: str) -> str:
        """Return a text's name; a text of the corpus is not shown, since answers are kept."""
        is_built_in = text in self._built_in
        return f"the built-in text {text[:60]!r}" if is_built_in else "a sampled document"

    @cached_property
    def _built_in(self) -> frozenset[str]:
        # Cached: reading the control tokens of a large vocabulary takes 0.1 s.
        return frozenset(hostile_texts(control_token_strings(self._tokenizer)))

    def _seconds_per_byte(self, texts: Sequence[str]) -> float:
        """Return the CPU time of the engine, called as in a run: from all its threads, or from one.

        Other processes lengthen the wall time, and hardly the CPU time.
        """
        text = pa.array(texts, pa.large_string())
        n_callers = self._n_threads if self._engine.concurrent else 1
        offsets = byte_offsets(text)
        n_bytes = max(1, int(offsets[-1] - offsets[0]))
        batches = list(split_by_bytes(text, -(-n_bytes // n_callers)))
        with ThreadPoolExecutor(n_callers) as pool:
            start_s = time.process_time()
            list(pool.map(self._engine.encode, batches))
            return (time.process_time() - start_s) / n_bytes


def fingerprints(engine: Engine, texts: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Return the xxh3-64 of the ids of each of n texts: (n,)."""
    found = np.empty(len(texts), np.uint64)
    for start in range(0, len(texts), _CALL_TEXTS):
        some = texts[start : start + _CALL_TEXTS]
        batch = engine.encode(pa.array(some, pa.large_string()))
        data, offsets = batch.ids.astype(np.uint32).tobytes(), batch.offsets.tolist()
        found[start : start + len(some)] = [
            xxhash.xxh3_64_intdigest(data[4 * offsets[i] : 4 * offsets[i + 1]])
            for i in range(len(some))
        ]
    return found


def main() -> None:
    """Load an engine, then answer every task of the parent."""
    parent = Parent()
    loading = parent.receive()
    try:
        tasks = EngineTasks(loading)
    except TokmillError as error:
        parent.receive()  # the first task
        parent.send(error)
        return
    while True:
        name, arguments = parent.receive()
        parent.send(getattr(tasks, name)(*arguments))
