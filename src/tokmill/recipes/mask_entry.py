"""The manifest's `mask`: the rule of the masks, and the ids that samples end with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.mask_rule import EVERYTHING, mask_rule
from tokmill.chat.segments import Kind
from tokmill.recipes.sft_setup import make_chat_renderer, sft_settings
from tokmill.values import UNMERGED_TEXT

if TYPE_CHECKING:
    from tokmill.chat.conversation import Message
    from tokmill.chat.render_pool import ChatRenderer
    from tokmill.engines.engine import Engine
    from tokmill.recipes.spec import RunSpec
    from tokmill.values import SampleBatch

_MARK = "\u200bm\u200b"
_PROBES = (
    ("user", "assistant"),
    ("system", "user", "assistant", "user", "assistant"),
    ("assistant",),
    ("user", "assistant", "user"),
    ("user", "assistant", "system"),
    ("user", "assistant", "tool"),
    ("user", "assistant", "tool", "assistant"),
    ("user", "call"),
    ("user", "empty"),
)
"""Roles of conversations: each role comes last in one of them. "call" is a tool call of the
assistant, "empty" an empty reply."""
_BEFORE = (".", "a", "1", " ", "\n", "\t", ":\n", ">", '"', ")", "\u3002", "\u00e9")
"""Ends of texts: a tokenizer may merge them with the text that the template writes next."""


def describe_mask(spec: RunSpec, reference: Engine) -> dict[str, Any]:
    """Return the manifest's `mask` of a run of SFT, without the counts of the run."""
    settings = sft_settings(spec.config)
    rule = mask_rule(settings)
    renderer = make_chat_renderer(spec.config, spec.tokenizer, spec.template)
    # A rendered text may end with any token.
    is_open = settings.rendered_text == "parse" and settings.schema in ("text", "mixed")
    is_open = is_open and not rule.appends_eos
    return {
        "preset": settings.preset,
        "boundary": rule.boundary,
        "alignment": "target",
        "trained": [kind.name.lower() for kind in Kind if rule.trained[kind]],
        "turns": EVERYTHING if rule.trains_all else rule.turns,
        "template": renderer.name,
        "template_sha256": spec.template_sha256,
        "ends": {
            "rule": "eos" if rule.appends_eos else "template",
            "last_ids": [] if is_open else last_ids(renderer, reference),
        },
    }


def last_ids(renderer: ChatRenderer, reference: Engine) -> list[int]:
    """Return the ids that a sample may end with; none if it may end with text of a message."""
    ids: set[int] = set()
    for roles in _PROBES:
        messages = [_message(role) for role in roles]
        try:
            samples = renderer.render_conversation(Conversation(messages, [None] * len(messages)))
        except ChatError:  # the template refuses this conversation
            continue
        last = _last_id(samples, reference)
        if last is None:
            return []
        ids.add(last)
    return sorted(ids)


def _message(role: str) -> Message:
    if role == "call":
        function = {"name": "f", "arguments": {"x": _MARK}}
        calls = [{"type": "function", "function": function}]
        return {"role": "assistant", "content": "", "tool_calls": calls}
    if role == "empty":
        return {"role": "assistant", "content": ""}
    return {"role": role, "content": _MARK}


def _last_id(samples: SampleBatch, reference: Engine) -> int | None:
    """Return the last id of the last sample.

    None if it depends on the text of a message, or if the tokenizer drops the last text (BERT drops
    white space).
    """
    control = samples.control.tolist()
    if control[-1] >= 0:
        return int(control[-1])
    texts: list[str] = []
    for text, id_ in zip(reversed(samples.text.to_pylist()), reversed(control), strict=True):
        if id_ >= 0:
            break
        texts.insert(0, text)
        if id_ == UNMERGED_TEXT:
            break
    ending = "".join(texts)
    befores = _BEFORE if _MARK in ending else ("",)
    ending = ending.rpartition(_MARK)[2]
    if not ending:
        return None
    last_ids: set[int | None] = set()
    for before in befores:
        ids = _encoded(reference, before + ending)
        last_ids.add(ids[-1] if ids else None)
    return last_ids.pop() if len(last_ids) == 1 else None


def _encoded(reference: Engine, text: str) -> list[int]:
    ids: list[int] = reference.encode(pa.array([text], pa.large_string())).ids.tolist()
    return ids
