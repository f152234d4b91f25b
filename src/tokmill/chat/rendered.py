"""Texts of schema `text` that are rendered conversations already: seen by what templates write."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.chat.fields import of_record
from tokmill.chat.inline import CALL_TAGS, REASONING_TAGS
from tokmill.chat.kept_strings import holds, patterns
from tokmill.chat.schemas import MIXED, recognise
from tokmill.chat.shield import control_pattern
from tokmill.errors import UsageError
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.settings.schema import SftSettings

RENDERED_TEXTS = "texts wrapped as replies that look like rendered conversations"

_FRAMES = (
    ("<|im_start|>",),
    ("<|start_header_id|>",),
    ("<start_of_turn>",),
    ("<|start|>", "<|message|>"),
    ("[INST]", "[/INST]"),
    ("<|user|>", "<|assistant|>"),
    ("<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"),
    ("### Instruction:", "### Response:"),
    ("### Human:", "### Assistant:"),
    ("Human: ", "\n\nAssistant: "),
    ("USER: ", "ASSISTANT: "),
)
"""What stands in a conversation as known templates write it: the first string, then the others."""

_LEAST_SHARE = 0.1
"""A run in whose first texts fewer look rendered is of texts, some of which quote a template."""

_SHORTEST = 3
"""A control token of fewer characters stands in any text, such as the sign ÷."""


class RenderedTexts:
    """Recognises rendered conversations by known frames and a tokenizer's control tokens."""

    def __init__(self, control: Collection[str]) -> None:
        tags = {*CALL_TAGS, *(tag for tags in REASONING_TAGS for tag in tags)}
        strings = {s for s in control if len(s.strip()) >= _SHORTEST} - tags
        self._search = re.compile(control_pattern(strings)).search
        self._patterns = patterns({*strings, *(frame[-1] for frame in _FRAMES)})

    def sign(self, text: str) -> str:
        """Return what shows that a text is a rendered conversation; '' where nothing does."""
        for first, *others in _FRAMES:
            position = text.find(first)
            if position >= 0 and all(text.find(other, position) >= 0 for other in others):
                return " … ".join([first, *map(str.strip, others)])
        found = self._search(text)
        return found[0] if found else ""

    def in_column(self, texts: pa.StringArray) -> npt.NDArray[np.int64] | None:
        """Return which texts of a column are, as 0 and 1: (n,); None where none is."""
        if not holds(texts, self._patterns):
            return None
        found = np.array([bool(self.sign(text)) for text in texts.to_pylist()], np.int64)
        return found if found.any() else None


def settle_rendered(
    settings: SftSettings,
    records: Sequence[Mapping[str, Any]],
    control: Iterable[str],
    where: str,
) -> SftSettings:
    """Return the settings with what becomes of rendered texts: `text` where there are none.

    Raises:
        UsageError: the first texts are rendered, and the settings do not say what becomes of them.
    """
    if settings.rendered_text != "refuse":
        return settings
    known = RenderedTexts(set(control))
    read = [of_record(record, settings) for record in records]
    texts = [record["text"] for record in read if _is_text(record, settings)]
    signs = [sign for sign in map(known.sign, texts) if sign]
    if not signs or len(signs) < _LEAST_SHARE * len(texts):
        return replace(settings, rendered_text="text")
    raise UsageError(
        f"{where}: rendered conversations in {len(signs)} of {plural(len(texts), 'text')} (found "
        f"{signs[0]!r}), which would become one reply each, their control tokens spelled out: "
        "--rendered-text parse takes them as they are and trains all of each, --rendered-text text "
        "wraps them; without masks: tokmill pretrain --control-tokens-in-text parse"
    )


def _is_text(record: Mapping[str, Any], settings: SftSettings) -> bool:
    """Return whether a record is read as a text."""
    schema = recognise(record) if settings.schema == MIXED else settings.schema
    return schema == "text" and isinstance(record.get("text"), str)


def text_note(settings: SftSettings) -> str:
    """Return what records of one text become; '' for other schemas."""
    if settings.schema != "text":
        return ""
    if settings.rendered_text == "parse":
        return "text: each record is taken as it is, control tokens read; all of it is trained"
    return "text: each record becomes one assistant message; all of it is trained"
