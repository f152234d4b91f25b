"""transformers' `apply_chat_template(return_assistant_tokens_mask=True)`, which TRL trains by."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from tests.oracles.masks_ours import Outcome, Refused, Sample
from tests.oracles.transformers_faults import FAULTS, Rendering, render

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokmill.chat.conversation import Conversation

_NAMED = (
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"
)  # fmt: skip
UNWRITTEN = "template for typed parts"
"""The reason of samples of a template that writes nothing of a reply that is text: tokmill refuses
it for the whole run."""

FIRST = "first token"
"""The reason of samples whose first token the reference trains: no position comes before it."""


class TransformersChat:
    """Applies one chat template with one tokenizer."""

    def __init__(self, tokenizer: Path, eos: str, template: str) -> None:
        self._tokenizer = load_fast(tokenizer, eos)
        self._template = template
        self.eos = str(self._tokenizer.eos_token)

    def outcomes(self, conversations: Sequence[Conversation]) -> list[Outcome]:
        """Return what the framework makes of each conversation; one call for all without tools."""
        found: list[Outcome | None] = [None] * len(conversations)
        plain = [i for i, conversation in enumerate(conversations) if not conversation.tools]
        try:
            out = self._apply([conversations[i].messages for i in plain], None) if plain else None
        except Exception:  # one of them: each alone will say
            out = None
        if out is not None:
            for i, ids, mask in zip(plain, out["input_ids"], out["assistant_masks"], strict=True):
                found[i] = Sample(list(ids), list(mask))
        return [
            outcome or self._one(conversation)
            for outcome, conversation in zip(found, conversations, strict=True)
        ]

    def explain(self, conversation: Conversation, theirs: Outcome, ours: Outcome) -> str:
        """Name the faults of the reference that must be repaired for its mask to be ours.

        The fewest of them: each is repaired alone, then two at a time, and so on. That the first
        token of a sample is no target is a rule of ours, tried in the same way.
        """
        if isinstance(theirs, Sample) and isinstance(ours, Refused):
            return UNWRITTEN if self._writes_no_reply(conversation, theirs) else ""
        if isinstance(theirs, Refused) or isinstance(ours, Refused) or theirs.ids != ours.ids:
            return ""
        rendering = render(self._tokenizer, self._template, conversation)
        if rendering.mask(()) != theirs.mask:
            return ""  # not what the reference has done
        repairs = (*FAULTS, FIRST)
        for n in range(1, len(repairs) + 1):
            for chosen in combinations(repairs, n):
                if _with_first(rendering, chosen) == ours.mask:
                    return " + ".join(chosen)
        return ""

    def _writes_no_reply(self, conversation: Conversation, theirs: Sample) -> bool:
        """Return whether other replies would make the very same sample."""
        messages = [
            {**message, "content": message["content"] + " more"}
            if message["role"] == "assistant"
            else message
            for message in conversation.messages
        ]
        return self._one(replace(conversation, messages=messages)) == theirs

    def _one(self, conversation: Conversation) -> Outcome:
        try:
            out = self._apply(conversation.messages, conversation.tools)
        except Exception as error:  # a template is a program: it may raise anything
            return Refused(" ".join(str(error).split())[:120] or type(error).__name__)
        return Sample(list(out["input_ids"]), list(out["assistant_masks"]))

    def _apply(self, messages: list[Any], tools: list[Any] | None) -> Any:
        return self._tokenizer.apply_chat_template(
            messages,
            tools=tools,
            chat_template=self._template,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )


def _with_first(rendering: Rendering, chosen: Sequence[str]) -> list[int]:
    mask = rendering.mask([name for name in chosen if name != FIRST])
    return [0, *mask[1:]] if FIRST in chosen else mask


def load_fast(tokenizer: Path, eos: str) -> Any:
    """Load a tokenizer.json as transformers does, with the named tokens of its configuration."""
    from transformers import PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.set_verbosity_error()  # else it warns of long sequences and of missing tags
    path = tokenizer / "tokenizer_config.json"
    config = json.loads(path.read_bytes()) if path.exists() else {}
    named = {name: config[name] for name in _NAMED if config.get(name)}
    named |= {"eos_token": eos} if eos else {}
    return PreTrainedTokenizerFast(tokenizer_file=str(tokenizer / "tokenizer.json"), **named)
