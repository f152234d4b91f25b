"""The parent's side of a probe: an engine under trial, in a child process of its own.

A native panic is not an exception: a child that dies is only a refusal. Children load side by side
while the parent still encodes what they have to reproduce; see `probe` for their side.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tokmill.children import Child, ChildEndedError
from tokmill.engines.engine import is_installed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    import numpy.typing as npt

    from tokmill.tokenizer.tokenizer import Tokenizer

PROBE_TIMEOUT_S = 120
"""For one answer, loading included. Counted while the parent waits for it: before, the parent
samples and encodes, and a slow file system is no fault of the engine."""

TIMED_OUT = "did not finish"


@dataclass(frozen=True, slots=True)
class Loading:
    """What a child loads."""

    engine: str
    tokenizer: Tokenizer
    control_in_text: str
    n_threads: int


@dataclass(frozen=True, slots=True)
class Parity:
    """Texts, and the reference's ids of each."""

    texts: Sequence[str]
    ids: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts whose ids are to be told as `fingerprints`."""

    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Timing:
    """Texts to time an engine on."""

    texts: Sequence[str]

    @property
    def n_bytes(self) -> int:
        """Give the bytes of all texts."""
        return sum(len(text.encode()) for text in self.texts)


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds for each byte of the first half of some texts, of the second, and of that again."""

    first: float
    second: float
    again: float


class Candidate:
    """An engine that begins to load when this is made; to be closed.

    A thread exchanges messages with the child, so that the parent never waits for it to read.
    """

    def __init__(self, loading: Loading) -> None:
        self.name = loading.engine
        self.refused = "" if is_installed(self.name) else "not installed"
        if self.refused:
            return
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  `__exit__` closes it
        threads = {"RAYON_NUM_THREADS": str(loading.n_threads)}
        self._child = Child("tokmill.engines.trial.probe", defaults=threads, errors=self._errors)
        self._thread = ThreadPoolExecutor(1)
        self._thread.submit(self._child.send, loading)
        self._answer: Future[dict[str, Any]]

    def __enter__(self) -> Self:
        """Return the candidate."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the child."""
        if hasattr(self, "_child"):
            self._child.stop()
            self._thread.shutdown()
            self._child.kill()
            self._errors.close()

    def begin(self, task: Parity | Timing | Texts) -> None:
        """Hand a task to the child, once it has loaded; `result` waits for its end."""
        if not self.refused:
            self._answer = self._thread.submit(self._ask, task)

    def result(self) -> dict[str, Any]:
        """Return the answer to the task begun last; nothing, and `refused`, if it has none."""
        if self.refused:
            return {}
        try:
            answer = self._answer.result(PROBE_TIMEOUT_S)
        except TimeoutError:
            answer = {"refused": f"{TIMED_OUT} within {PROBE_TIMEOUT_S} s"}
            self._child.stop()
        except ChildEndedError as error:
            answer = {"refused": f"died with status {error.status}: {self._last_words()}"}
        self.refused = answer.get("refused", "")
        return {} if self.refused else answer

    def fingerprints(self) -> npt.NDArray[np.uint64]:
        """Return the answer to `Texts` begun last; nothing, and `refused`, if it has none."""
        found: npt.NDArray[np.uint64] = self.result().get("fingerprints", np.empty(0, np.uint64))
        return found

    def _ask(self, task: Parity | Timing | Texts) -> dict[str, Any]:
        self._child.send(task)
        answer: dict[str, Any] = self._child.receive()
        return answer

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "no message"
