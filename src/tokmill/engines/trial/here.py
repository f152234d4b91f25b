"""An engine on trial in this very process, with the face of a `Candidate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tokmill.engines.engine import is_installed
from tokmill.engines.trial.probe import Probe
from tokmill.errors import TokmillError

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.engines.trial.candidate import Loading, Parity, Texts, Timing


class HereCandidate:
    """An engine that is loaded when its first task begins; a panic of native code refuses it."""

    def __init__(self, loading: Loading) -> None:
        self.name = loading.engine
        self.refused = "" if is_installed(self.name) else "not installed"
        self._loading = loading
        self._probe: Probe | None = None
        self._answer: dict[str, Any] = {}

    def __enter__(self) -> Self:
        """Return the candidate."""
        return self

    def __exit__(self, *_: object) -> None:
        """Forget the engine."""
        self._probe = None

    def begin(self, task: Parity | Timing | Texts) -> None:
        """Do a task; `result` has its answer."""
        self._answer = {}
        if self.refused:
            return
        try:
            self._probe = self._probe or Probe(self._loading)
            self._answer = self._probe.answer(task)
        except TokmillError as error:
            self.refused = str(error)
        except BaseException as error:
            # A panic of native code derives from BaseException, and has no public type.
            if type(error).__name__ != "PanicException":
                raise
            self.refused = " ".join(str(error).split())[:200]

    def result(self) -> dict[str, Any]:
        """Return the answer to the task begun last; nothing, and `refused`, if it has none."""
        return {} if self.refused else self._answer

    def fingerprints(self) -> npt.NDArray[np.uint64]:
        """Return the answer to `Texts` begun last; nothing, and `refused`, if it has none."""
        found: npt.NDArray[np.uint64] = self.result().get("fingerprints", np.empty(0, np.uint64))
        return found
