"""Compares engines with the reference on characters and on sequences of characters.

The texts are the same for every engine of a tokenizer, and the reference encodes them once. An
engine in a child process answers with a fingerprint of each text's ids. Texts of many characters
that differ are compared again, character by character.
"""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.engines.characters import COMMON, EVERY, RARE, CharacterSet
from tokmill.engines.choice import ScanResult
from tokmill.engines.trial.contexts import derive_groups
from tokmill.engines.trial.hostile_texts import class_sequences, compositions, in_lines, token_texts
from tokmill.engines.trial.remembered import KeptScans
from tokmill.engines.trial.tasks import fingerprints

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from tokmill.engines.engine import Engine
    from tokmill.engines.trial.contexts import Context, Group
    from tokmill.engines.trial.engine_process import EngineOnTrial
    from tokmill.tokenizer.tokenizer import Tokenizer

    Answer = Callable[[Sequence[str]], npt.NDArray[np.uint64] | None]

_CHARACTERS_PER_TEXT = 64

MOST_CHARACTERS = 20_000
"""An engine that differs on more characters is refused: newer tables cannot be the reason."""


class Scan:
    """The comparison for one tokenizer.

    `all_characters`: else only the common ones. `groups`: characters to compare instead; then
    nothing is remembered.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        reference: Callable[[], Engine],
        control_in_text: str = "text",
        groups: Sequence[Group] | None = None,
        *,
        all_characters: bool = True,
    ) -> None:
        self._tokenizer = tokenizer
        self._reference = reference
        self._groups = groups
        self._all_characters = all_characters
        self._characters = EVERY if all_characters else COMMON
        self._uncompared = CharacterSet() if all_characters else RARE
        self._kept = KeptScans(tokenizer, control_in_text) if groups is None else None
        self._known: dict[str, ScanResult | None] = {}

    def known(self, name: str) -> ScanResult | None:
        """Return the result of an earlier run for an engine, None if there is none."""
        if name not in self._known:
            self._known[name] = (
                self._kept.find(name, all_characters=self._all_characters) if self._kept else None
            )
        return self._known[name]

    def begin(self, engine: EngineOnTrial) -> None:
        """Let an engine encode all texts, unless its result is known."""
        if not engine.refused and self.known(engine.name) is None:
            engine.begin("fingerprints", self.texts)

    def result(self, engine: EngineOnTrial) -> ScanResult | None:
        """Return the result for an engine after `begin`; None if it is refused otherwise."""
        known = None if engine.refused else self.known(engine.name)
        if engine.refused or known is not None:
            return known
        _ = self.expected  # computed while the engine works
        found = engine.result()
        if found is None:
            return None

        def answer(texts: Sequence[str]) -> npt.NDArray[np.uint64] | None:
            engine.begin("fingerprints", texts)
            fingerprints: npt.NDArray[np.uint64] | None = engine.result()
            return fingerprints

        result = self.compare(found, answer)
        if engine.refused:
            return None
        if self._kept is not None:
            self._kept.keep(engine.name, result)
        return result

    @cached_property
    def texts(self) -> list[str]:
        """Return the texts that are compared first: many characters, then lines of sequences."""
        in_contexts = [context.text(characters) for context, characters in self._character_texts]
        return in_contexts + ["\n".join(lines) for lines in self._lines]

    @cached_property
    def expected(self) -> npt.NDArray[np.uint64]:
        """Return the reference's fingerprints of `texts`."""
        return fingerprints(self._reference(), self.texts)

    def compare(self, found: npt.NDArray[np.uint64], answer: Answer) -> ScanResult:
        """Compare an engine with the reference, by its fingerprints of `texts`.

        `answer` asks the same engine for the fingerprints of other texts.
        """
        differing = np.flatnonzero(found != self.expected).tolist()
        n_first = len(self._character_texts)
        texts = [self._character_texts[i] for i in differing if i < n_first]
        if len(texts) > MOST_CHARACTERS:
            return self._result(refused="its ids differ from the reference's on most characters")
        groups = [[(one, c.text(one)) for one in characters] for c, characters in texts]
        singles, joint = self._narrow(groups, answer)
        codes = {ord(one) for one in singles}
        lines = [self._lines[i - n_first] for i in differing if i >= n_first]
        sequences, joint_lines = self._narrow(
            [[(one, one) for one in some] for some in lines], answer
        )
        more_codes, unexplained = self._explain([*sequences, *joint, *joint_lines], codes)
        return self._judge(CharacterSet.of(codes | more_codes), unexplained)

    def _narrow(
        self, groups: Sequence[Sequence[tuple[str, str]]], answer: Answer
    ) -> tuple[list[str], list[str]]:
        """Return names of (name, text) that differ alone, and groups that differ only jointly."""
        texts = [text for group in groups for _, text in group]
        if not texts:
            return [], []
        answered = answer(texts)
        if answered is None:  # the engine is refused
            return [], []
        differs = iter((fingerprints(self._reference(), texts) != answered).tolist())
        found, joint = [], []
        for group in groups:
            names = [name for name, _ in group if next(differs)]
            found += names
            if not names:
                joint.append("".join(text for _, text in group))
        return found, joint

    def _judge(self, differs: CharacterSet, sequences: Sequence[str]) -> ScanResult:
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
        n_characters = len({c for _, characters in self._character_texts for c in characters})
        n_sequences = sum(map(len, self._lines))
        return ScanResult(
            differs or CharacterSet(), refused, n_characters, n_sequences, self._uncompared
        )

    @cached_property
    def _library(self) -> Any:
        library = self._tokenizer.library()
        library.encode_special_tokens = True
        return library

    @cached_property
    def _character_texts(self) -> list[tuple[Context, str]]:
        groups = self._groups
        if groups is None:
            groups = derive_groups(self._library, all_characters=self._all_characters)
        return [
            (context, group.characters[start : start + _CHARACTERS_PER_TEXT])
            for group in groups
            for context in group.contexts
            for start in range(0, len(group.characters), _CHARACTERS_PER_TEXT)
        ]

    @cached_property
    def _lines(self) -> list[list[str]]:
        of_classes = class_sequences(self._characters), compositions(self._characters)
        return in_lines([*chain(*of_classes), *token_texts(self._library)])

    def _explain(self, sequences: Sequence[str], codes: set[int]) -> tuple[set[int], list[str]]:
        """Return more characters that explain differing sequences, and the unexplained sequences.

        A character that differs alone, or that was not compared, explains its sequences. A pair
        that composes only in newer tables is explained by its characters beyond the first plane;
        all such pairs have one.
        """
        pairs = frozenset(compositions(self._characters))
        more: set[int] = set()
        unexplained = []
        for sequence in sequences:
            own = set(map(ord, sequence))
            if codes.isdisjoint(own) and not any(code in self._uncompared for code in own):
                late = {code for code in own if code > 0xFFFF} if sequence in pairs else set()
                more |= late
                if not late:
                    unexplained.append(sequence)
        return more, unexplained
