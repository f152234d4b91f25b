"""An engine under trial, in a child process or in this one.

A panic of native code can end a process, so an engine that is not known yet gets a child: a child
that dies refuses the engine. Children load side by side while the parent encodes the texts with
the reference.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from tokmill.children import Child, ChildEndedError
from tokmill.engines.engine import is_installed, thread_variables
from tokmill.engines.trial.tasks import ANY_TOKENIZER, EngineTasks
from tokmill.errors import TokmillError
from tokmill.tokenizer.refusal import is_panic

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tokmill.engines.store import EngineStore
    from tokmill.engines.trial.tasks import EngineToLoad

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
        threads = thread_variables(loading.n_threads)
        self._child = Child("tokmill.engines.trial.tasks", defaults=threads, errors=self._errors)
        self._thread = ThreadPoolExecutor(1)
        self._thread.submit(self._child.send, loading)
        self._answer: Future[Any]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if hasattr(self, "_child"):
            self._child.stop()
            self._thread.shutdown()
            self._child.kill()
            self._errors.close()

    def begin(self, task: str, *arguments: object) -> None:
        """Send a task to the child, which may still load: a method of `EngineTasks`."""
        if not self.refused:
            self._answer = self._thread.submit(self._ask, (task, arguments))

    def result(self, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        """Return the result of the last task; None, and `refused`, if there is none."""
        if self.refused:
            return None
        try:
            answer = self._answer.result(timeout_s)
        except TimeoutError:
            self.refused = f"{TIMED_OUT} within {timeout_s} s"
            self._child.stop()
        except ChildEndedError as error:
            self.refused = f"died with status {error.status}: {self._last_error_line()}"
        else:
            if not isinstance(answer, TokmillError):
                return answer
            self.refused = str(answer)
        return None

    def _ask(self, message: object) -> Any:
        self._child.send(message)
        return self._child.receive()

    def _last_error_line(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "no message"


class InProcessEngine:
    """The same interface without a child: loads with the first task; a panic refuses the engine.

    `engines`: keeps the engine for the run.
    """

    def __init__(self, loading: EngineToLoad, engines: EngineStore) -> None:
        self.name = loading.engine
        self.refused = "" if is_installed(self.name) else "not installed"
        self._loading = loading
        # Named as in an answer of `EngineTasks`, which is remembered.
        self._engine = engines.share(
            loading.engine,
            replace(loading.tokenizer, name=ANY_TOKENIZER),
            control_in_text=loading.control_in_text,
            n_threads=loading.n_threads,
        )
        self._tasks: EngineTasks | None = None
        self._answer: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._tasks = None

    def begin(self, task: str, *arguments: object) -> None:
        """Run a task; `result` returns its result."""
        if self.refused:
            return
        try:
            self._tasks = self._tasks or EngineTasks(self._loading, self._engine())
            self._answer = getattr(self._tasks, task)(*arguments)
        except TokmillError as error:
            self.refused = str(error)
        except BaseException as error:
            if not is_panic(error):
                raise
            self.refused = " ".join(str(error).split())[:200]

    def result(self) -> Any:
        """Return the result of the last task; None, and `refused`, if there is none."""
        return None if self.refused else self._answer


EngineOnTrial = EngineProcess | InProcessEngine
