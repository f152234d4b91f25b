"""The templates that come with tokmill: Jinja files, their names, and the tokens that they need.

A training template has tags around what is trained, for models whose own template has none. Some
also keep what the own template hides of earlier turns once later turns follow: old reasoning, or
that a turn was the last. One sample of several turns would then not show the prompt that each reply
answers.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from tokmill.errors import UsageError

if TYPE_CHECKING:
    from tokmill.chat.control_strings import Vocabulary

_CHATML = ("<|im_start|>", "<|im_end|>")
_THINK = ("<think>", "</think>")
_HARMONY = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>")
_PHI = ("<|user|>", "<|assistant|>", "<|end|>")
_LLAMA3 = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
_MISTRAL = ("<s>", "</s>")
_BOS = "bos_token"
_NANOCHAT = tuple(
    f"<|{name}_{edge}|>"
    for name in ("user", "assistant", "python", "output")
    for edge in ("start", "end")
)

BUILT_IN: dict[str, tuple[str, ...]] = {
    "chatml": _CHATML,
    "llama3": (_BOS, *_LLAMA3),
    "alpaca": (),
    "plain": (),
    "minimind": _CHATML,
    "torchtune": _CHATML,
    "nanochat": ("<|bos|>", *_NANOCHAT),
    "baby-llama2": (_BOS,),
}
"""The control tokens that each template needs; these templates mark every part of a sample."""

TRAINING: dict[str, tuple[str, ...]] = {
    "qwen2.5-training": _CHATML,
    "qwen3-training": _CHATML,
    "qwen3.5-training": (*_CHATML, *_THINK),
    "qwen3.5-quiet-training": (*_CHATML, *_THINK),
    "qwen3.6-training": (*_CHATML, *_THINK),
    "gpt-oss-training": _HARMONY,
    "glm-4.5-training": ("<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
    "glm-4.7-training": ("<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
    "kimi-k2-thinking-training": ("<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>"),
    "minimax-m2-training": ("]~b]", "[e~["),
    "smollm3-training": (*_CHATML, *_THINK),
    "nemotron-3-training": (*_CHATML, *_THINK),
    "nemotron-3-ultra-training": (*_CHATML, *_THINK),
    "minimind-training": _CHATML,
    "llama-3-training": _LLAMA3,
    "llama-3.1-training": _LLAMA3,
    "mistral-training": _MISTRAL,
    "mistral-v1-training": _MISTRAL,
    "gemma-training": ("<start_of_turn>", "<end_of_turn>"),
    "gemma-4-training": ("<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|tool_response>"),
    "phi-3-training": _PHI,
    "phi-4-mini-training": _PHI,
    "phi-4-training": (*_CHATML, "<|im_sep|>"),
    "deepseek-training": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "deepseek-v3.1-training": ("<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
    "deepseek-r1-training": ("<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
}
"""The same of templates that mark replies with generation tags, as a model's own template may."""

_INCLUDE = re.compile(r" *\{%- include '(.+)' -%\}\n").sub
NAMES = (*BUILT_IN, *TRAINING)


@cache
def own_source(name: str) -> str:
    """Return the Jinja source of one of `NAMES`, with the parts that it includes."""
    folder = files("tokmill.chat") / "templates"

    def part(include: re.Match[str]) -> str:
        text = (folder / "parts" / f"{include[1]}.jinja").read_text(encoding="utf-8")
        return _INCLUDE(part, text)

    return _INCLUDE(part, (folder / f"{name}.jinja").read_text(encoding="utf-8"))


def own_name(source: str) -> str:
    """Return the name of the template with this source; '' if it did not come with tokmill."""
    return next((name for name in NAMES if own_source(name) == source), "")


def check_tokens(name: str, vocabulary: Vocabulary) -> None:
    """Check that a tokenizer has the control tokens of one of `NAMES`.

    Raises:
        UsageError: one is missing.
    """
    needed = (BUILT_IN | TRAINING)[name]
    strings = [vocabulary.bos or "bos" if string == _BOS else string for string in needed]
    missing = [string for string in strings if string not in vocabulary.control]
    if missing == ["bos"]:
        raise UsageError(
            f"template {name} writes bos, which this tokenizer does not name: give --bos-token"
        )
    if missing:
        raise UsageError(
            f"template {name} needs the control tokens {', '.join(missing)}, which this "
            "tokenizer does not have: use its own (--template=tokenizer), plain or alpaca"
        )
