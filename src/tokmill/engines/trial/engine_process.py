"""An engine under trial, in a child process or in this one.

A panic of native code can end a process, so an engine that is not known yet gets a child: a child
that dies refuses the engine. Children load side by side while the parent encodes the texts with
the reference.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tokmill.children import Child, ChildEndedError
from tokmill.engines.engine import is_installed
from tokmill.engines.threads import VARIABLE
from tokmill.engines.trial.tasks import TaskRunner
from tokmill.errors import TokmillError
from tokmill.tokenizer.tokenizer import is_panic

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy.typing as npt

    from tokmill.engines.trial.tasks import EngineToLoad, Task

ANSWER_TIMEOUT_S = 120
"""For one answer, loading included. Counted only while the parent waits: before that, the parent
samples and encodes, and a slow file system is not the engine's fault."""

TIMED_OUT = "did not finish"


class EngineProcess:
    """An engine in a child process, which begins to load at once; to be closed.

    A thread exchanges messages with the child, so that the parent never waits for it to read.
    """

    def __init__(self, loading: EngineToLoad) -> None:
        self.name = loading.engine
        self.refused = "" if is_installed(self.name) else "not installed"
        if self.refused:
            return
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  `__exit__` closes it
        threads = {VARIABLE: str(loading.n_threads)}
        self._child = Child("tokmill.engines.trial.tasks", defaults=threads, errors=self._errors)
        self._thread = ThreadPoolExecutor(1)
        self._thread.submit(self._child.send, loading)
        self._answer: Future[dict[str, Any]]

    def __enter__(self) -> Self:
        """Return the engine."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the child."""
        if hasattr(self, "_child"):
            self._child.stop()
            self._thread.shutdown()
            self._child.kill()
            self._errors.close()

    def begin(self, task: Task) -> None:
        """Send a task to the child, which may still load; `result` waits for the answer."""
        if not self.refused:
            self._answer = self._thread.submit(self._ask, task)

    def result(self) -> dict[str, Any]:
        """Return the answer to the last task; an empty one, and `refused`, if there is none."""
        if self.refused:
            return {}
        try:
            answer = self._answer.result(ANSWER_TIMEOUT_S)
        except TimeoutError:
            answer = {"refused": f"{TIMED_OUT} within {ANSWER_TIMEOUT_S} s"}
            self._child.stop()
        except ChildEndedError as error:
            answer = {"refused": f"died with status {error.status}: {self._last_error_line()}"}
        self.refused = answer.get("refused", "")
        return {} if self.refused else answer

    def _ask(self, task: Task) -> dict[str, Any]:
        self._child.send(task)
        answer: dict[str, Any] = self._child.receive()
        return answer

    def _last_error_line(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "no message"


class InProcessEngine:
    """The same interface without a child: loads with the first task; a panic refuses the engine."""

    def __init__(self, loading: EngineToLoad) -> None:
        self.name = loading.engine
        self.refused = "" if is_installed(self.name) else "not installed"
        self._loading = loading
        self._runner: TaskRunner | None = None
        self._answer: dict[str, Any] = {}

    def __enter__(self) -> Self:
        """Return the engine."""
        return self

    def __exit__(self, *_: object) -> None:
        """Drop the engine."""
        self._runner = None

    def begin(self, task: Task) -> None:
        """Run a task; `result` returns its answer."""
        self._answer = {}
        if self.refused:
            return
        try:
            self._runner = self._runner or TaskRunner(self._loading)
            self._answer = self._runner.answer(task)
        except TokmillError as error:
            self.refused = str(error)
        except BaseException as error:
            if not is_panic(error):
                raise
            self.refused = " ".join(str(error).split())[:200]

    def result(self) -> dict[str, Any]:
        """Return the answer to the last task; an empty one, and `refused`, if there is none."""
        return {} if self.refused else self._answer


EngineOnTrial = EngineProcess | InProcessEngine


def fingerprints_of(engine: EngineOnTrial) -> npt.NDArray[np.uint64]:
    """Return the answer to the last `FingerprintTask`; empty if the engine is refused."""
    found: npt.NDArray[np.uint64] = engine.result().get("fingerprints", np.empty(0, np.uint64))
    return found
