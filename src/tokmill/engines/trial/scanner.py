"""Scans the engines of one tokenizer, or remembers what an earlier run found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.engines.trial.cache import KeptScans
from tokmill.engines.trial.candidate import Texts
from tokmill.engines.trial.scan import Scan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt

    from tokmill.engines.engine import Engine
    from tokmill.engines.trial.candidate import Candidate
    from tokmill.engines.trial.contexts import Group
    from tokmill.engines.trial.here import HereCandidate
    from tokmill.engines.trial.scan import ScanResult
    from tokmill.tokenizer.tokenizer import Tokenizer


class Scanner:
    """What is known of engines on all characters.

    Args:
        tokenizer: what is encoded with.
        reference: loads its reference engine.
        control_in_text: see `load_engine`.
        groups: other characters than all; then nothing is remembered.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        reference: Callable[[], Engine],
        control_in_text: str,
        groups: Sequence[Group] | None = None,
    ) -> None:
        self._scan = Scan(tokenizer, reference, groups)
        self._kept = KeptScans(tokenizer, control_in_text) if groups is None else None
        self._known: dict[str, ScanResult | None] = {}

    def known(self, engine: str) -> ScanResult | None:
        """Return what an earlier run found out about an engine, if one did."""
        if engine not in self._known:
            self._known[engine] = self._kept.find(engine) if self._kept else None
        return self._known[engine]

    def begin(self, candidate: Candidate | HereCandidate) -> None:
        """Let a candidate encode all texts, if nothing is known of it."""
        if not candidate.refused and self.known(candidate.name) is None:
            candidate.begin(Texts(self._scan.texts))

    def result(self, candidate: Candidate | HereCandidate) -> ScanResult | None:
        """Return what is known of a candidate begun; None where it is refused before that."""
        known = None if candidate.refused else self.known(candidate.name)
        if candidate.refused or known is not None:
            return known
        expected = self._scan.expected  # while the candidate is at work
        found = candidate.fingerprints()
        if candidate.refused or len(found) != len(expected):
            return None

        def answer(texts: Sequence[str]) -> npt.NDArray[np.uint64]:
            candidate.begin(Texts(texts))
            return candidate.fingerprints()

        result = self._scan.compare(found, answer)
        if candidate.refused:
            return None
        if self._kept is not None:
            self._kept.keep(candidate.name, result)
        return result
