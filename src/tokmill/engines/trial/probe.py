"""The child's side of a probe: one engine, compared with the reference's ids, then timed.

The first message is what to load; every other one is a task, and is answered.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tokmill.children import Parent
from tokmill.engines.engine import load_engine
from tokmill.engines.spot import describe_difference
from tokmill.engines.trial.candidate import Loading, Parity, Speed, Texts, Timing
from tokmill.engines.trial.fingerprints import fingerprints
from tokmill.engines.trial.hostile import hostile_texts
from tokmill.errors import TokmillError
from tokmill.offsets import byte_offsets, split_by_bytes
from tokmill.tokenizer.control_strings import control_strings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.engines.engine import Engine

_PASSES = 4
"""Over known text: each thread of an engine may have words of its own, and has to meet them all."""


class Probe:
    """An engine under trial.

    Raises:
        TokenizerError: it is missing, or refuses the tokenizer.
    """

    def __init__(self, loading: Loading) -> None:
        self._n_threads = loading.n_threads
        # What is said here is remembered for runs that have the tokenizer in another place.
        self._tokenizer = replace(loading.tokenizer, name="the tokenizer")
        self._engine: Engine = load_engine(
            loading.engine,
            self._tokenizer,
            control_in_text=loading.control_in_text,
            n_threads=loading.n_threads,
        )

    def answer(self, task: Parity | Timing | Texts) -> dict[str, Any]:
        """Do a task: `differences` by a text's index, a `Speed`, or `fingerprints`."""
        if isinstance(task, Texts):
            return {"fingerprints": fingerprints(self._engine, task.texts)}
        return self._compared(task) if isinstance(task, Parity) else self._timed(task)

    def _compared(self, task: Parity) -> dict[str, Any]:
        batch = self._engine.encode(pa.array(task.texts, pa.large_string()))
        differences = {}
        for i, expected in enumerate(task.ids):
            ids = batch.ids[batch.offsets[i] : batch.offsets[i + 1]]
            if not np.array_equal(ids, expected):
                differs = describe_difference(ids, expected)
                differences[i] = f"its {differs} of {self._which(task.texts[i])}"
        return {"differences": differences} if differences else {}

    def _which(self, text: str) -> str:
        """Name a text; one of the corpus is not shown to the runs of others."""
        is_built_in = text in self._built_in
        return f"the built-in text {text[:60]!r}" if is_built_in else "a sampled document"

    @cached_property
    def _built_in(self) -> frozenset[str]:
        # Once for all texts: to read a large vocabulary for its control tokens takes 0.1 s.
        return frozenset(hostile_texts(control_strings(self._tokenizer)))

    def _timed(self, task: Timing) -> dict[str, Any]:
        middle = len(task.texts) // 2
        first = self._seconds_per_byte(task.texts[:middle])
        second = self._seconds_per_byte(task.texts[middle:])
        again = min(self._seconds_per_byte(task.texts[middle:]) for _ in range(_PASSES))
        return asdict(Speed(first, second, again))

    def _seconds_per_byte(self, texts: Sequence[str]) -> float:
        """Time the engine as the recipe feeds it: from all its threads, or from one.

        Where callers work side by side, by the processors' time, which others on the machine do not
        lengthen.
        """
        text = pa.array(texts, pa.large_string())
        n_callers = self._n_threads if self._engine.concurrent else 1
        offsets = byte_offsets(text)
        n_bytes = max(1, int(offsets[-1] - offsets[0]))
        batches = list(split_by_bytes(text, -(-n_bytes // n_callers)))
        with ThreadPoolExecutor(n_callers) as pool:
            start, start_cpu = time.perf_counter(), time.process_time()
            list(pool.map(self._engine.encode, batches))
            wall_s, cpu_s = time.perf_counter() - start, time.process_time() - start_cpu
        return (cpu_s / n_callers if self._engine.concurrent else wall_s) / n_bytes


def main() -> None:
    """Load an engine, then answer every task of the parent."""
    parent = Parent()
    loading = parent.receive()
    try:
        probe = Probe(loading)
    except TokmillError as error:
        parent.receive()  # the first task
        parent.send({"refused": str(error)})
        return
    while True:
        parent.send(probe.answer(parent.receive()))
