"""Compares engines with the reference on every character and on sequences of characters.

The texts are the same for every engine of a tokenizer, and what the reference makes of them is
computed once. An engine in a process of its own answers with a fingerprint of each text's ids;
texts of many characters that differ are compared again, character by character.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tokmill.engines.characters import CharacterSet
from tokmill.engines.choice import ScanResult
from tokmill.engines.trial.contexts import derive_groups
from tokmill.engines.trial.engine_process import fingerprints_of
from tokmill.engines.trial.remembered import KeptScans
from tokmill.engines.trial.sequences import class_sequences, compositions, in_lines, token_texts
from tokmill.engines.trial.tasks import FingerprintTask, fingerprints

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from tokmill.engines.engine import Engine
    from tokmill.engines.trial.contexts import Context, Group
    from tokmill.engines.trial.engine_process import EngineOnTrial
    from tokmill.tokenizer.tokenizer import Tokenizer

    Answer = Callable[[Sequence[str]], npt.NDArray[np.uint64]]

_CHARACTERS_PER_TEXT = 64

MOST_CHARACTERS = 20_000
"""An engine that differs on more characters is refused: its tables are not just newer."""


class Scan:
    """The comparison for one tokenizer.

    Args:
        tokenizer: what is encoded with.
        reference: loads its reference engine.
        groups: the characters and their contexts; by default all, derived from the tokenizer.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        reference: Callable[[], Engine],
        groups: Sequence[Group] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._reference = reference
        self._groups = groups

    @cached_property
    def texts(self) -> list[str]:
        """The texts that are compared first: of many characters, then lines of sequences."""
        in_contexts = [context.text(characters) for context, characters in self._pieces]
        return in_contexts + ["\n".join(lines) for lines in self._lines]

    @cached_property
    def expected(self) -> npt.NDArray[np.uint64]:
        """What the reference makes of `texts`."""
        return fingerprints(self._reference(), self.texts)

    def compare(self, found: npt.NDArray[np.uint64], answer: Answer) -> ScanResult:
        """Return how an engine compares.

        Args:
            found: its fingerprints of `texts`.
            answer: asks the same engine for the fingerprints of other texts.
        """
        differing = np.flatnonzero(found != self.expected).tolist()
        n_pieces = len(self._pieces)
        pieces = [self._pieces[i] for i in differing if i < n_pieces]
        if len(pieces) > MOST_CHARACTERS:
            return self._result(refused="its ids differ from the reference's on most characters")
        groups = [[(one, c.text(one)) for one in characters] for c, characters in pieces]
        singles, parted = self._narrowed(groups, answer)
        codes = {ord(one) for one in singles}
        lines = [self._lines[i - n_pieces] for i in differing if i >= n_pieces]
        sequences, others = self._narrowed([[(one, one) for one in some] for some in lines], answer)
        new, whole = _blamed([*sequences, *parted, *others], codes)
        return self._judged(CharacterSet.of(codes | new), whole)

    def _narrowed(
        self, groups: Sequence[Sequence[tuple[str, str]]], answer: Answer
    ) -> tuple[list[str], list[str]]:
        """Return what of (name, text) differs by itself, and groups in which nothing does."""
        texts = [text for group in groups for _, text in group]
        if not texts:
            return [], []
        answered = answer(texts)
        if len(answered) != len(texts):  # it has died, and is refused for that
            return [], []
        differs = iter((fingerprints(self._reference(), texts) != answered).tolist())
        found, whole = [], []
        for group in groups:
            names = [name for name, _ in group if next(differs)]
            found += names
            if not names:
                whole.append("".join(text for _, text in group))
        return found, whole

    def _judged(self, differs: CharacterSet, sequences: Sequence[str]) -> ScanResult:
        if sequences:
            shown = min(sequences, key=lambda text: (len(text), text))
            return self._result(
                refused=f"its ids differ from the reference's on {len(sequences)} sequences of "
                f"characters, such as {ascii(shown)[:80]}"
            )
        if len(differs) > MOST_CHARACTERS or any(first < 0x80 for first, _ in differs.ranges):
            first = next(iter(differs.codes()))
            return self._result(
                refused=f"its ids differ from the reference's on {len(differs)} characters, such "
                f"as {chr(first)!a}"
            )
        return self._result(differs)

    def _result(self, differs: CharacterSet | None = None, *, refused: str = "") -> ScanResult:
        n_characters = len({c for _, characters in self._pieces for c in characters})
        n_sequences = sum(map(len, self._lines))
        return ScanResult(differs or CharacterSet(), refused, n_characters, n_sequences)

    @cached_property
    def _pieces(self) -> list[tuple[Context, str]]:
        groups = derive_groups(self._tokenizer) if self._groups is None else self._groups
        return [
            (context, group.characters[start : start + _CHARACTERS_PER_TEXT])
            for group in groups
            for context in group.contexts
            for start in range(0, len(group.characters), _CHARACTERS_PER_TEXT)
        ]

    @cached_property
    def _lines(self) -> list[list[str]]:
        every = [*class_sequences(), *compositions(), *token_texts(self._tokenizer)]
        return in_lines(every)


class RememberedScan:
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

    def known(self, name: str) -> ScanResult | None:
        """Return what an earlier run found out about an engine, if one did."""
        if name not in self._known:
            self._known[name] = self._kept.find(name) if self._kept else None
        return self._known[name]

    def begin(self, engine: EngineOnTrial) -> None:
        """Let a engine encode all texts, if nothing is known of it."""
        if not engine.refused and self.known(engine.name) is None:
            engine.begin(FingerprintTask(self._scan.texts))

    def result(self, engine: EngineOnTrial) -> ScanResult | None:
        """Return what is known of a engine begun; None where it is refused before that."""
        known = None if engine.refused else self.known(engine.name)
        if engine.refused or known is not None:
            return known
        expected = self._scan.expected  # while the engine is at work
        found = fingerprints_of(engine)
        if engine.refused or len(found) != len(expected):
            return None

        def answer(texts: Sequence[str]) -> npt.NDArray[np.uint64]:
            engine.begin(FingerprintTask(texts))
            return fingerprints_of(engine)

        result = self._scan.compare(found, answer)
        if engine.refused:
            return None
        if self._kept is not None:
            self._kept.keep(engine.name, result)
        return result


def _blamed(sequences: Sequence[str], codes: set[int]) -> tuple[set[int], list[str]]:
    """Return characters to blame for sequences that differ, and sequences with none to blame.

    A character that differs by itself explains its sequences. A pair that composes in the newer
    tables alone is blamed on its characters beyond the first plane, as all such pairs are.
    """
    pairs = frozenset(compositions())
    new: set[int] = set()
    whole = []
    for sequence in sequences:
        if codes.isdisjoint(map(ord, sequence)):
            late = {ord(one) for one in sequence if one > "\uffff"} if sequence in pairs else set()
            new |= late
            if not late:
                whole.append(sequence)
    return new, whole
