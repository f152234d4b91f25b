"""An engine in a child process, whose ids are compared with the reference's.

A panic of native code can end a process, and an engine can loop for ever on a text: then it is
refused, and the run goes on without it. The module is also the child. Each message has texts, and
the first one also says which engine to load.
"""

from __future__ import annotations

import select
import tempfile
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import xxhash

from tokmill.children import Child, ChildEndedError, Parent
from tokmill.engines.engine import REFERENCE, load_engine, thread_variables
from tokmill.engines.routing import CharacterSet, RoutedEngine
from tokmill.errors import TokmillError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokmill.engines.engine import Engine
    from tokmill.tokenizer.tokenizer import Tokenizer

ANSWER_TIMEOUT_S = 300.0
"""For the fingerprints of all texts, loading included: 5 s on two cores."""

_CALL_TEXTS = 512
"""About 200 kB, of nearly as many tokens: the reference takes over 100 bytes for each."""


class EngineChild:
    """An engine in a child process; to be closed.

    `refused`: why it has no more answers, or ''. `timed_out`: it did not answer in time; in another
    run it may.
    """

    def __init__(self, name: str, tokenizer: Tokenizer, n_threads: int) -> None:
        self.name = name
        self.refused = ""
        self.timed_out = False
        self._n_asked = 0
        self._loading: Any = (name, replace(tokenizer, name="the tokenizer"), n_threads)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  `__exit__` closes it
        variables = thread_variables(n_threads)
        self._child = Child("tokmill.engines.engine_child", defaults=variables, errors=self._errors)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._errors.close()

    def begin(self, texts: Sequence[str]) -> None:
        """Send texts, all of whose answers were read; the child loads the engine with the first."""
        self._n_asked = len(texts)
        if not self.refused:
            try:
                self._child.send((self._loading, texts))  # the child waits for it
            except ChildEndedError as error:
                self._refuse(error)
            self._loading = None

    def result(self, timeout_s: float = ANSWER_TIMEOUT_S) -> npt.NDArray[np.uint64]:
        """Return the fingerprints of these texts: (n,); zeros, and `refused`, without an answer."""
        answer: Any = None
        if self.refused:
            pass
        elif not select.select([self._child], [], [], timeout_s)[0]:
            self.refused, self.timed_out = f"did not finish within {timeout_s:g} s", True
            self._child.stop()
        else:
            try:
                answer = self._child.receive()
            except ChildEndedError as error:
                self._refuse(error)
        if isinstance(answer, TokmillError):
            self.refused = str(answer)
        return answer if isinstance(answer, np.ndarray) else np.zeros(self._n_asked, np.uint64)

    def _refuse(self, error: ChildEndedError) -> None:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        last = lines[-1][:200] if lines else "no message"
        self.refused = f"died with status {error.status}: {last}"


def fingerprints(engine: Engine, texts: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Return the xxh3-64 of the ids of each of n texts: (n,)."""
    result: list[int] = []
    for start in range(0, len(texts), _CALL_TEXTS):
        batch = engine.encode(pa.array(texts[start : start + _CALL_TEXTS], pa.large_string()))
        data, bounds = batch.ids.astype(np.uint32).data.cast("B"), (4 * batch.offsets).tolist()
        result += [xxhash.xxh3_64_intdigest(data[a:b]) for a, b in pairwise(bounds)]
    return np.array(result, np.uint64)


def main() -> None:
    """Load an engine, then answer all texts of the parent."""
    parent = Parent()
    (name, tokenizer, n_threads), texts = parent.receive()
    load = partial(load_engine, tokenizer=tokenizer, control_in_text="text", n_threads=n_threads)
    try:
        # As in a run, the reference encodes a text on which the engine raises.
        engine = RoutedEngine(load(name), cache(partial(load, REFERENCE)), CharacterSet())
    except TokmillError as error:
        parent.send(error)
        return
    while True:
        parent.send(fingerprints(engine, texts))
        _, texts = parent.receive()
