"""Listed faults of transformers' assistant mask, each with its repair.

The reference finds the tokens of a span of characters by `char_to_token`. Its steps are written
down here once more, with a switch for each fault: what has to be repaired for its mask to be
another one is the cause of the difference. tests/oracles/test_sft_transformers.py shows of each
fault on a small case which of the two masks is right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

    from tokmill.chat.conversation import Conversation

    Span = tuple[int, int]

LAST_CHARACTER = "a: last character of several tokens"
"""`char_to_token` gives the first of the tokens inside a character; the rest stays untrained."""

TOKEN_ZERO = "b: span ends at token 0"
"""`end_token + 1 if end_token else len(ids)`: 0 is taken for None, and all is trained."""

TRIMMED = "c: trimmed white space"
"""A character in no token (`trim_offsets`): at a start this and all later spans are lost, at an end
all that follows is trained."""

WRAPPED = "d: tags in a macro or set block"
"""Offsets are taken where the block is called, not where its text is written."""

EMPTY = "e: empty span"
"""The token that stands around an empty span is trained, and may lie in a user's turn."""

STRIPPED = "f: white space in a control token"
"""A control token that strips to its right holds the white space that begins a span, and is
trained with it."""

FAULTS = (LAST_CHARACTER, TOKEN_ZERO, TRIMMED, WRAPPED, EMPTY, STRIPPED)

_OPEN, _CLOSE = "\ue0f0", "\ue0f1"


@dataclass(frozen=True, slots=True)
class Rendering:
    """A conversation as the reference renders and encodes it.

    `tracked`: the spans of characters that it finds; `true`: those between the tags. `offsets`: the
    range of characters of each token. `of_character`: what `char_to_token` gives.
    """

    text: str
    tracked: list[Span]
    true: list[Span]
    offsets: list[Span]
    of_character: Any

    def mask(self, repairs: Collection[str]) -> list[int]:
        """Return the reference's mask, with some of its faults repaired."""
        n = len(self.offsets)
        mask = [0] * n
        for start, stop in self.true if WRAPPED in repairs else self.tracked:
            if start == stop and EMPTY in repairs:
                continue
            first, last = self._tokens(start, stop, repairs)
            if first is None:
                break
            is_found = last is not None if TOKEN_ZERO in repairs else bool(last)
            end = last + 1 if is_found and last is not None else n
            mask[first:end] = [1] * len(mask[first:end])
        return mask

    def _tokens(
        self, start: int, stop: int, repairs: Collection[str]
    ) -> tuple[int | None, int | None]:
        """Return the first and the last token of a span."""
        first, last = self._token_of(start), self._token_of(stop - 1)
        if TRIMMED in repairs:
            inside = [i for i, (a, b) in enumerate(self.offsets) if a < stop and b > start]
            if inside and first is None:
                first = inside[0]
            if inside and last is None:
                last = inside[-1]
        if STRIPPED in repairs and first is not None and self._holds_white_space(first, start):
            first += 1
        if LAST_CHARACTER in repairs and last is not None:
            covering = [i for i, (a, b) in enumerate(self.offsets) if a <= stop - 1 < b]
            last = max([last, *covering])
        return first, last

    def _holds_white_space(self, token: int, start: int) -> bool:
        """Return whether a token holds text from before a span, and of the span white space."""
        begin, end = self.offsets[token]
        return begin < start < end and not self.text[start:end].strip()

    def _token_of(self, character: int) -> int | None:
        if character < 0:
            return None
        token: int | None = self.of_character(character)
        return token


def render(tokenizer: Any, template: str, conversation: Conversation) -> Rendering:
    """Render and encode a conversation with the reference's own code."""
    from transformers.utils.chat_template_utils import render_jinja_template

    def rendered(source: str, *, tracks: bool) -> tuple[str, list[Span]]:
        texts, spans = render_jinja_template(
            conversations=[conversation.messages],
            tools=conversation.tools,
            chat_template=source,
            return_assistant_tokens_mask=tracks,
            **tokenizer.special_tokens_map,
        )
        return texts[0], spans[0] if spans else []

    text, tracked = rendered(template, tracks=True)
    marked, _ = rendered(_with_marks(template), tracks=False)
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    offsets = [(int(a), int(b)) for a, b in encoding["offset_mapping"]]
    true = _between_marks(marked)
    return Rendering(text, tracked, true, offsets, lambda i: encoding.char_to_token(0, i))


def _with_marks(template: str) -> str:
    """Return a template that writes a character where a generation tag stands.

    A `with` block is a scope, as a generation block is; the empty `set` beside each mark is a
    block, so that white space around it goes as it goes around the tag.
    """
    opened = rf"{{%\1 with %}}{{{{ '{_OPEN}' }}}}{{% set _ = 0 \2%}}"
    closed = rf"{{%\1 set _ = 0 %}}{{{{ '{_CLOSE}' }}}}{{% endwith \2%}}"
    template = re.sub(r"\{%(-?)\s*generation\s*(-?)%\}", opened, template)
    return re.sub(r"\{%(-?)\s*endgeneration\s*(-?)%\}", closed, template)


def _between_marks(marked: str) -> list[Span]:
    spans = []
    position = start = 0
    for piece in re.split(f"([{_OPEN}{_CLOSE}])", marked):
        if piece == _OPEN:
            start = position
        elif piece == _CLOSE:
            spans.append((start, position))
        else:
            position += len(piece)
    return spans
