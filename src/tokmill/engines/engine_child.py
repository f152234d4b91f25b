"""An engine in a child process, whose ids are compared with the reference's.

A panic of native code can end a process, and an engine can loop for ever on a text: then it is
refused, and the run goes on without it. The module is also the child: its first message is the
engine to load, every other one texts.
"""

from __future__ import annotations

import select
import tempfile
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import xxhash

from tokmill.children import Child, ChildEndedError, Parent
from tokmill.engines.engine import REFERENCE, is_installed, load_engine, thread_variables
from tokmill.engines.routing import CharacterSet, RoutedEngine
from tokmill.errors import TokmillError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokmill.engines.engine import Engine
    from tokmill.tokenizer.tokenizer import Tokenizer

ANSWER_TIMEOUT_S = 120.0
"""For one answer, loading included."""

TIMED_OUT = "did not finish"

_CALL_TEXTS = 512
"""About 200 kB, of nearly as many tokens: the reference takes over 100 bytes for each."""


class EngineChild:
    """An engine in a child process, which begins to load at once; to be closed.

    `refused`: why it has no more answers, or ''.
    """

    def __init__(self, name: str, tokenizer: Tokenizer, n_threads: int) -> None:
        self.name = name
        self.refused = "" if is_installed(name) else "not installed"
        self._loading: Any = (name, replace(tokenizer, name="the tokenizer"), n_threads)
        self._n_asked = 0
        if self.refused:
            return
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  `__exit__` closes it
        variables = thread_variables(n_threads)
        self._child = Child("tokmill.engines.engine_child", defaults=variables, errors=self._errors)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if hasattr(self, "_child"):
            self._child.kill()
            self._errors.close()

    @property
    def timed_out(self) -> bool:
        """Return whether it did not answer in time: it may in another run."""
        return self.refused.startswith(TIMED_OUT)

    def begin(self, texts: Sequence[str]) -> None:
        """Send texts, all of whose answers were read, and load the engine before the first."""
        self._n_asked = len(texts)
        if self._loading is not None:
            self._exchange(self._loading)
            self._loading = None
        self._send(texts)

    def result(self, timeout_s: float = ANSWER_TIMEOUT_S) -> npt.NDArray[np.uint64]:
        """Return the fingerprints of the texts that were sent last: (n,); zeros if refused."""
        answer = self._receive(timeout_s)
        return np.zeros(self._n_asked, np.uint64) if answer is None else answer

    def _exchange(self, message: object) -> None:
        self._send(message)
        self._receive(ANSWER_TIMEOUT_S)

    def _send(self, message: object) -> None:
        if not self.refused:
            try:
                self._child.send(message)  # it waits for one, and reads at once
            except ChildEndedError as error:
                self._refuse(error)

    def _receive(self, timeout_s: float) -> Any:
        """Return the next message; None, and `refused`, if there is none or it is an error."""
        if self.refused:
            return None
        if not select.select([self._child], [], [], timeout_s)[0]:
            self.refused = f"{TIMED_OUT} within {timeout_s:g} s"
            self._child.stop()
            return None
        try:
            answer = self._child.receive()
        except ChildEndedError as error:
            self._refuse(error)
            return None
        if isinstance(answer, TokmillError):
            self.refused = str(answer)
            return None
        return answer

    def _refuse(self, error: ChildEndedError) -> None:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        last = lines[-1][:200] if lines else "no message"
        self.refused = f"died with status {error.status}: {last}"


def fingerprints(engine: Engine, texts: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Return the xxh3-64 of the ids of each of n texts: (n,)."""
    result = np.empty(len(texts), np.uint64)
    for start in range(0, len(texts), _CALL_TEXTS):
        some = texts[start : start + _CALL_TEXTS]
        batch = engine.encode(pa.array(some, pa.large_string()))
        data, offsets = batch.ids.astype(np.uint32).tobytes(), batch.offsets.tolist()
        result[start : start + len(some)] = [
            xxhash.xxh3_64_intdigest(data[4 * offsets[i] : 4 * offsets[i + 1]])
            for i in range(len(some))
        ]
    return result


def main() -> None:
    """Load an engine, then answer all texts of the parent."""
    parent = Parent()
    name, tokenizer, n_threads = parent.receive()
    load = partial(load_engine, tokenizer=tokenizer, control_in_text="text", n_threads=n_threads)
    try:
        loaded = load(name)
        loaded.encode(pa.array(["a"], pa.large_string()))  # imports what it needs
    except TokmillError as error:
        parent.send(error)
        return
    # As in a run, the reference encodes a text on which the engine raises.
    engine = RoutedEngine(loaded, cache(partial(load, REFERENCE)), CharacterSet())
    parent.send("loaded")
    while True:
        parent.send(fingerprints(engine, parent.receive()))
