"""Rewrites a tokenizer.json into an equivalent one that more engines can load.

Every rewrite is a pure function from the steps of a tokenizer.json (`normalizer`, `pre_tokenizer`)
to equivalent ones; it returns its argument if there is nothing to do. The reference always encodes
with the original file, so the checks of an engine (hostile texts, sample, spot check) also check
the rewritten file.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tokmill.tokenizer.tokenizer_json import (
    Content,
    split_step,
    step_parts,
    step_types,
    steps,
    with_steps,
    with_values,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DIGITS_THEN_GPT2 = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"
)

_PUNCTUATION_STOP = 0x20000
"""The planes from here on have ideographs, tags and private use: no punctuation."""


def equivalent_text(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the text of an equivalent tokenizer.json, and the names of the rewrites.

    Only its steps are rewritten; the rest of the text, 150,000 tokens or more, is not parsed.
    """
    content = step_parts(text)
    names, rewritten = [], content
    for name, rewrite in REWRITES.items():
        changed = rewrite(rewritten)
        if changed is not rewritten:
            names.append(name)
            rewritten = changed
    return with_values(text, {k: v for k, v in rewritten.items() if v != content[k]}), tuple(names)


def flatten_sequences(content: Content) -> Content:
    """Flatten nested sequences; a sequence of one step becomes the step, an empty one null.

    Exact: a sequence only applies its steps in order.
    """
    for key, inner in (("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers")):
        part = content.get(key)
        if not isinstance(part, dict) or part.get("type") != "Sequence":
            continue
        flat = steps(content, key)
        if len(flat) < 2 or flat != part.get(inner):
            content = with_steps(content, key, flat)
    return content


def digits_to_one_split(content: Content) -> Content:
    r"""Replace `Digits` and a `ByteLevel` that splits by one `Split` (StarCoder, SmolLM, Command).

    Exact: `Digits` isolates `\p{N}`, single or in runs, and GPT-2's pattern then splits the text
    between numbers. In one pattern a number is an alternative of its own; since a number ends the
    text before it, the lookahead of `\s+(?!\S)` must treat a number like an end. fastokens loads
    both spellings, and is 3.5 times as fast with one pattern (50 and 14 MB/s of English, 2 cores).
    """
    splits = steps(content, "pre_tokenizer")
    if step_types(splits) != ["Digits", "ByteLevel"]:
        return content
    digits, byte_level = splits
    if byte_level.get("add_prefix_space", True) or not byte_level.get("use_regex", True):
        return content
    pattern = DIGITS_THEN_GPT2 % ("" if digits.get("individual_digits") else "+")
    changed = [split_step(pattern), {**byte_level, "use_regex": False}]
    return with_steps(content, "pre_tokenizer", changed)


def punctuation_to_split(content: Content) -> Content:
    """Replace `Punctuation` by a `Split` with a class of the same characters (Falcon).

    Exact: the class is computed with the reference library. No Unicode category equals it, since
    the library's own table comes from an older Unicode.
    """
    splits = steps(content, "pre_tokenizer")
    changed = [
        split_step(_punctuation_class(), step.get("behavior") or "Isolated")
        if step.get("type") == "Punctuation"
        else step
        for step in splits
    ]
    return content if changed == splits else with_steps(content, "pre_tokenizer", changed)


REWRITES: Mapping[str, Callable[[Content], Content]] = {
    "sequences flattened": flatten_sequences,
    "digits and ByteLevel as one split": digits_to_one_split,
    "Punctuation as a split": punctuation_to_split,
}
"""Every rewrite by its name in plan and report, in the order in which they are applied."""


@cache
def _punctuation_class() -> str:
    """Return a regex class of the characters that the installed library counts as punctuation."""
    from tokenizers.pre_tokenizers import Punctuation

    characters = "".join(
        chr(code) for code in range(_PUNCTUATION_STOP) if not 0xD800 <= code < 0xE000
    )
    # Runs alternate; the first is not punctuation.
    runs = Punctuation("contiguous").pre_tokenize_str(characters)
    ranges = ((ord(run[0]), ord(run[-1])) for run, _ in runs[1::2])
    return "[" + "".join(rf"\x{{{start:X}}}-\x{{{last:X}}}" for start, last in ranges) + "]"
