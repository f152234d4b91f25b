"""What the manifest says of the masks: the rule that made them, and how every sample ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.segments import TEXT_ALONE, Kind
from tokmill.chat.weights import mask_rule
from tokmill.recipes.sft_setup import make_chat_renderer, sft_settings

if TYPE_CHECKING:
    from tokmill.chat.conversation import Message
    from tokmill.chat.renderer import ChatRenderer
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
"""Roles of conversations: whatever role the last message has, the sample should end alike. "call"
is a tool call of the assistant, "empty" a reply that says nothing."""
_BEFORE = (".", "a", "1", " ", "\n", "\t", ":\n", ">", '"', ")", "\u3002", "\u00e9")
"""What a text may end with: a tokenizer may merge it with what the template writes behind it."""


def describe_mask(spec: RunSpec, reference: Engine) -> dict[str, Any]:
    """Give the manifest's `mask`, but for what the run counted.

    Args:
        spec: a run of SFT.
        reference: its reference engine.
    """
    settings = sft_settings(spec.config)
    rule = mask_rule(settings)
    renderer = make_chat_renderer(spec.config, spec.tokenizer, spec.template)
    # A text that is taken as it is may end in any token.
    is_open = settings.rendered_text == "parse" and settings.schema in ("text", "mixed")
    is_open = is_open and rule.append_eos == "no"
    return {
        "preset": settings.preset,
        "boundary": rule.boundary,
        "alignment": "target",
        "trained": [kind.name.lower() for kind in Kind if rule.trained[kind]],
        "turns": rule.turns,
        "template": renderer.name,
        "template_sha256": spec.template_sha256,
        "ends": {
            "rule": "template" if rule.append_eos == "no" else "eos",
            "last_ids": [] if is_open else last_ids(renderer, reference),
        },
    }


def last_ids(renderer: ChatRenderer, reference: Engine) -> list[int]:
    """Give the ids one of which every sample ends with; none where the text may come last."""
    found: set[int] = set()
    for roles in _PROBES:
        messages = [_message(role) for role in roles]
        try:
            samples = renderer.render_conversation(Conversation(messages, [None] * len(messages)))
        except ChatError:  # not for this template
            continue
        last = _last_id(samples, reference)
        if last is None:
            return []
        found.add(last)
    return sorted(found)


def _message(role: str) -> Message:
    if role == "call":
        function = {"name": "f", "arguments": {"x": _MARK}}
        calls = [{"type": "function", "function": function}]
        return {"role": "assistant", "content": "", "tool_calls": calls}
    if role == "empty":
        return {"role": "assistant", "content": ""}
    return {"role": role, "content": _MARK}


def _last_id(samples: SampleBatch, reference: Engine) -> int | None:
    """Give the last id of the last sample; None where it depends on a message's text."""
    control = samples.control.tolist()
    if control[-1] >= 0:
        return int(control[-1])
    texts: list[str] = []
    for text, id_ in zip(reversed(samples.text.to_pylist()), reversed(control), strict=True):
        if id_ >= 0:
            break
        texts.insert(0, text)
        if id_ == TEXT_ALONE:
            break
    ending = "".join(texts)
    if _MARK not in ending:
        return int(_encoded(reference, ending)[-1])
    ending = ending.rpartition(_MARK)[2]
    found = {_encoded(reference, before + ending)[-1] for before in _BEFORE} if ending else set()
    return found.pop() if len(found) == 1 else None


def _encoded(reference: Engine, text: str) -> list[int]:
    ids: list[int] = reference.encode(pa.array([text], pa.large_string())).ids.tolist()
    return ids
