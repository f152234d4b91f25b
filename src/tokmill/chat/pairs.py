"""Turns that stand as pairs: `{"human": "…", "assistant": "…"}` instead of two messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.chat.keys import ANSWER_KEYS, PROMPT_KEYS
from tokmill.chat.names import role_of

if TYPE_CHECKING:
    from tokmill.chat.conversation import Message
    from tokmill.settings.schema import SftSettings

_OTHER_NAMES = {
    **dict.fromkeys((*PROMPT_KEYS, "instruction", "input"), "user"),
    **dict.fromkeys(ANSWER_KEYS, "assistant"),
}
_ORDER = ("system", "user", "assistant")


def pair_in(item: Any, settings: SftSettings) -> list[Message]:
    """Return the messages of a question and its answer; none where an item is no such pair.

    All its keys are names of who speaks, once each; a system text may stand before the two.
    """
    if not isinstance(item, dict):
        return []
    texts: dict[str, str] = {}
    for name, text in item.items():
        role = role_of(name, settings) or _OTHER_NAMES.get(name.lower(), "")
        if text is None and role:
            continue
        if role not in _ORDER or role in texts or not isinstance(text, str):
            return []
        texts[role] = text
    if "user" not in texts or "assistant" not in texts:
        return []
    said = [(role, texts[role]) for role in _ORDER if role in texts]
    return [{"role": role, "content": text} for role, text in said if text or role != "system"]
