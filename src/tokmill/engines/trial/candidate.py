"""The parent's side of a probe: an engine under trial, in a child process of its own.

A native panic is not an exception: a child that dies is only a refusal. Children load side by side
while the parent still encodes what they have to reproduce; see `probe` for their side.
"""

from __future__ import annotations

import base64
import json
import pickle
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tokmill.engines.engine import is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
    """An engine that begins to load when this is made; to be closed."""

    def __init__(self, loading: Loading) -> None:
        self.name = loading.engine
        self.refused = "" if is_installed(self.name) else "not installed"
        if self.refused:
            return
        self._directory = tempfile.TemporaryDirectory(prefix="tokmill-")
        self._stderr = Path(self._directory.name) / "stderr"
        with self._stderr.open("wb") as stderr:
            self._child = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tokmill.engines.trial.probe",
                    self._keep("loading", loading),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )

    def __enter__(self) -> Self:
        """Give the candidate."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the child."""
        if hasattr(self, "_child"):
            self._child.kill()
            self._child.communicate()
            self._directory.cleanup()

    def begin(self, task: Parity | Timing | Texts) -> None:
        """Hand a task to the child, once it has loaded; `result` waits for its end."""
        if self.refused or self._child.stdin is None:
            return
        try:
            self._child.stdin.write(self._keep(type(task).__name__, task) + "\n")
            self._child.stdin.flush()
        except OSError:
            return  # it has ended, and `result` finds out why

    def result(self) -> dict[str, Any]:
        """Give the answer to the task begun last; nothing, and `refused`, if it has none."""
        if self.refused or self._child.stdout is None:
            return {}
        with self._clock():
            line = self._child.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line.endswith("\n") else self._why_it_ended()
        self.refused = self.refused or answer.get("refused", "")
        return {} if self.refused else answer

    def fingerprints(self) -> npt.NDArray[np.uint64]:
        """Return the answer to `Texts` begun last; nothing, and `refused`, if it has none."""
        answer = self.result().get("fingerprints", "")
        return np.frombuffer(base64.b64decode(answer), np.uint64)

    def _keep(self, name: str, value: object) -> str:
        """Give a file that holds a value: a pipe would keep the parent until the child reads."""
        path = Path(self._directory.name) / name
        path.write_bytes(pickle.dumps(value))
        return str(path)

    @contextmanager
    def _clock(self) -> Iterator[None]:
        """Stop the child if the context is open for too long."""
        timer = Timer(PROBE_TIMEOUT_S, self._stop)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # or `_stop` might come behind the answer

    def _stop(self) -> None:
        self.refused = f"{TIMED_OUT} within {PROBE_TIMEOUT_S} s"
        self._child.kill()

    def _why_it_ended(self) -> dict[str, Any]:
        status = self._child.wait()
        if self.refused:
            return {"refused": self.refused}
        last = (self._stderr.read_text(errors="replace").strip().splitlines() or ["no message"])[-1]
        last = last.replace(f"{self._directory.name}/", "")
        return {"refused": f"died with status {status}: {last[:200]}"}
