"""The steps that normalize and split text in the tokenizer.json of common tokenizers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tokmill.tokenizer.tiktoken_file import encodings
from tokmill.tokenizer.tokenizer import Tokenizer
from tokmill.tokenizer.tokenizer_json import (
    SPACE_MARK,
    as_text,
    replace_step,
    sequence,
    split_step,
)

NFC = {"type": "NFC"}
SPLITS = {
    "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True
}  # fmt: skip
BYTES = {**SPLITS, "use_regex": False}
DIGITS = {"type": "Digits", "individual_digits": True}

_CASED_LEAD = r"[^\r\n\p{L}\p{N}]?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"

TEKKEN = (
    rf"{_CASED_LEAD}{_UPPER}*{_LOWER}+|{_CASED_LEAD}{_UPPER}+{_LOWER}*|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_TAIL}"
)
QWEN_WITH_MARKS = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_TAIL}"
)
_LINE_ENDS = "\r\n"  # not escaped in its file
DEEPSEEK_3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
    rf"|[^{_LINE_ENDS}\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[{_LINE_ENDS}]*|\s*[{_LINE_ENDS}]+|\s+(?!\S)|\s+"
)
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"


def byte_level_steps() -> dict[str, tuple[Any, list[Any]]]:
    """Return normalizer and pre-tokenizer steps of byte-level tokenizers, by name."""
    known = encodings()
    cl100k, o200k, qwen = (known[name].pattern for name in ("cl100k", "o200k", "qwen2"))
    return {
        "gpt2": (None, [SPLITS]),
        "gpt-neox, olmo": (NFC, [SPLITS]),
        "llama 3, cl100k": (None, [split_step(cl100k), BYTES]),
        "qwen 2.5, qwen 3": (NFC, [split_step(qwen), BYTES]),
        "gpt-oss, o200k": (None, [split_step(o200k), BYTES]),
        "olmo 3": (None, [split_step(cl100k.replace(r"[\r\n]+|", r"[\r\n]|")), BYTES]),
        "mistral tekken": (None, [split_step(TEKKEN), BYTES]),
        "deepseek 3": (
            None,
            [*map(split_step, (r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK_3)), BYTES],
        ),
        "starcoder 2, smollm": (None, [DIGITS, SPLITS]),
        "command": (NFC, [DIGITS, SPLITS]),
        "cl100k, olmo 2": (None, [{**split_step(cl100k, "Removed"), "invert": True}, BYTES]),
        "qwen without a normalizer": (None, [split_step(qwen), BYTES]),
        "qwen 3.5": (NFC, [split_step(QWEN_WITH_MARKS), BYTES]),
        "o200k, phi 4 mini": (None, [{**split_step(o200k, "Removed"), "invert": True}, BYTES]),
        "bloom": (None, [split_step(BLOOM), BYTES]),
        "gpt2 as a split": (None, [split_step(known["gpt2"].pattern), BYTES]),
    }


def sentencepiece_steps() -> dict[str, tuple[Any, list[Any]]]:
    """Return the same of tokenizers converted from SentencePiece, with a fallback to bytes."""
    marks = replace_step({"String": " "}, SPACE_MARK)
    metaspace = {"type": "Metaspace", "replacement": SPACE_MARK, "split": False}
    prepend = {"type": "Prepend", "prepend": SPACE_MARK}
    by_spaces = {
        "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
        "invert": False,
    }  # fmt: skip
    return {
        "llama 2, mistral": (sequence("normalizer", [prepend, marks]), []),
        "llama 2, mistral, continued": (sequence("normalizer", [marks]), []),
        "llama 2, mistral, first": (None, [{**metaspace, "prepend_scheme": "first"}]),
        "llama 2, mistral, always": (None, [{**metaspace, "prepend_scheme": "always"}]),
        "llama 2, mistral, never": (None, [{**metaspace, "prepend_scheme": "never"}]),
        "gemma": (marks, [by_spaces]),
        "gemma 3": (marks, []),
    }


def common_tokenizers(tokenizer: Tokenizer) -> Iterator[tuple[str, Tokenizer]]:
    """Yield tokenizers with common steps and the model of a tokenizer, if that is of their kind."""
    content = json.loads(tokenizer.json)
    is_byte_level = "ByteLevel" in tokenizer.json
    falls_back = bool(content["model"].get("byte_fallback"))
    steps = byte_level_steps() if is_byte_level else sentencepiece_steps() if falls_back else {}
    for label, (normalizer, splits) in steps.items():
        pre_tokenizer = sequence("pre_tokenizer", splits) if splits else None
        changed = {**content, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer}
        yield label, replace(tokenizer, json=as_text(changed))
