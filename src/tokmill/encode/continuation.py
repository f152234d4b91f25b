"""Text that goes on from text before it: encoded without the space that a tokenizer puts in front.

SentencePiece's way puts a space before every text it encodes. A piece that a boundary of the mask
cuts off is no text of its own, so its tokenizer is a variant without that prefix; a proof on
built-in pairs holds the two together against the text encoded whole.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from tokmill.encode.byte_lengths import adds_prefix, steps
from tokmill.encode.control_variant import added_tokens
from tokmill.encode.cuts import WHITE_SPACE
from tokmill.encode.rewrite import rewrite
from tokmill.errors import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tokmill.encode.control_variant import AddedToken
    from tokmill.encode.engine import Engine
    from tokmill.encode.tokenizer import Tokenizer

_LEFT = (
    *("user: hi\n", "Answer:", "### Response:\n", "Human: what?\n\nAssistant:", "assistant\n"),
    *("中文：", "答案：", "[/INST]", "Question: 2 + 2 = ", "<|assistant|>\n", "Well, ", "👍"),
)
_RIGHT = (
    *("Hello, world!", " yes", "  two spaces", "\nnew line", "你好，世界。", "42", "👍 ok", " 猫"),
    *("\n\n", " ", "\t", "(", "é", "...", "The quick brown fox"),
)

_PROBES = ("hello", " hello", "\nhello", "你好", "a", "1", "👍")


def continuation_tokenizer(tokenizer: Tokenizer) -> Tokenizer | None:
    """Give the tokenizer for text that continues text.

    The same object where no prefix is ever put before a text; a variant without it where the
    tokenizer.json can say so; None where it cannot.
    """
    if not tokenizer.json:
        return None
    head = _without_model(tokenizer.json)
    if head is not None and _without_prefix(head) is head:
        return tokenizer
    content = json.loads(tokenizer.json)
    changed = _without_prefix(content)
    if changed is None or changed is content:
        return None if changed is None else tokenizer
    rewritten, words = rewrite(changed)
    text = _as_text(changed)
    return replace(
        tokenizer,
        kind="json",  # a SentencePiece model itself cannot leave the prefix out
        json=text,
        rewritten_json=_as_text(rewritten) if words else "",
        rewrites=words,
    )


def prove_continuation(
    tokenizer: Tokenizer, first: Engine, continuation: Engine, *, parse: bool = False
) -> int:
    """Hold split encoding against whole texts, and give the number of pairs that agreed.

    Of the built-in pairs (a, b) those count in which the tokens of a + b have a boundary between
    them, by the offsets of the reference. With `parse`, b behind a control token's string is no
    continuation: `closed_texts` judges these.

    Args:
        tokenizer: the one that `first` encodes with.
        first: the engine for texts.
        continuation: the engine for texts that continue texts.
        parse: whether control tokens' strings in a text become control tokens.

    Raises:
        TokenizerError: a pair has other tokens than its text, or no pair has a boundary.
    """
    import pyarrow as pa

    pairs = _pairs_with_boundary(tokenizer, parse=parse)
    if not pairs:
        raise TokenizerError(f"{tokenizer.name}: {_NOT_PROVEN}, for no text shows it; {_ADVICE}")
    columns = [pa.array(column, pa.large_string()) for column in zip(*pairs, strict=True)]
    left, right = first.encode(columns[0]), continuation.encode(columns[1])
    whole = first.encode(pa.array([a + b for a, b in pairs], pa.large_string()))
    for i, (a, b) in enumerate(pairs):
        parts = [
            batch.ids[batch.offsets[i] : batch.offsets[i + 1]].tolist()
            for batch in (left, right, whole)
        ]
        if parts[0] + parts[1] != parts[2]:
            raise TokenizerError(
                f"{tokenizer.name}: {_NOT_PROVEN}: {a!r} and {b!r} become {parts[0]} and "
                f"{parts[1]}, together {parts[2]}; {_ADVICE}"
            )
    return len(pairs)


def after_control(
    tokenizer: Tokenizer, continuation: Tokenizer | None, strings: Collection[str]
) -> str:
    """Say how the reference encodes text behind a control token: `first` or `continuation`.

    Args:
        tokenizer: the one asked about.
        continuation: what `continuation_tokenizer` gives for it.
        strings: the control tokens in question, all of them added tokens.

    Raises:
        TokenizerError: neither holds, or not the same for all of them.
    """
    if tokenizer.kind == "sentencepiece" and not tokenizer.json:
        return "first"
    behind = _behind(tokenizer, strings)
    for name, variant in (("first", tokenizer), ("continuation", continuation)):
        if variant is not None and all(map(_encodes_so(variant), behind.values())):
            return name
    raise TokenizerError(
        f"{tokenizer.name}: text behind its control tokens is encoded neither as a text nor as the "
        "continuation of one; choose another tokenizer"
    )


def closed_texts(tokenizer: Tokenizer, added: Mapping[str, AddedToken]) -> str:
    """Return a pattern of parsed control tokens; '' if text behind them is never a first text.

    Those behind which the reference encodes text as it does the first of a text are groups of it,
    with the white space that they swallow. Of strings that begin together the longest is the token.
    """
    is_first = _encodes_so(tokenizer)
    closing = {string for string, ids in _behind(tokenizer, added).items() if is_first(ids)}
    if not closing:
        return ""
    choices = []
    for string in sorted(added, key=len, reverse=True):
        swallowed = f"[{WHITE_SPACE}]*" if added[string].rstrip else ""
        choice = re.escape(string) + swallowed
        choices.append(f"({choice})" if string in closing else choice)
    return "|".join(choices)


_NOT_PROVEN = "text that continues text cannot be encoded apart from it"
_ADVICE = "choose boundary joint"


def _without_model(tokenizer_json: str) -> dict[str, Any] | None:
    """Give what stands before the model, whose vocabulary takes 0.2 s to parse; None if unsure."""
    head, _, _ = tokenizer_json.partition('"model":')
    try:
        content = json.loads(head.rstrip().removesuffix(",") + "}")
    except ValueError:
        return None
    return content if {"normalizer", "pre_tokenizer"} <= set(content) else None


def _without_prefix(content: dict[str, Any]) -> dict[str, Any] | None:
    """Take the prefix out of a tokenizer.json; the very same one where it has none."""
    changed = content
    normalizers = steps(content, "normalizer")
    kept = [step for step in normalizers if step.get("type") != "Prepend"]
    if len(kept) < len(normalizers):
        sequence = {"type": "Sequence", "normalizers": kept}
        changed = {**changed, "normalizer": sequence if kept else None}
    splitters = steps(content, "pre_tokenizer")
    adding = [position for position, step in enumerate(splitters) if adds_prefix(step)]
    if not adding:
        return changed
    if adding != [0]:  # before every part of a text, so that its first is nothing special
        return None
    bare = [_bare(splitters[0]), *splitters[1:]]
    return {**changed, "pre_tokenizer": {"type": "Sequence", "pretokenizers": bare}}


def _bare(step: dict[str, Any]) -> dict[str, Any]:
    if step["type"] == "ByteLevel":
        return {**step, "add_prefix_space": False}
    kept = {key: value for key, value in step.items() if key not in ("add_prefix_space", "str_rep")}
    return {**kept, "prepend_scheme": "never"}


def _as_text(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def _pairs_with_boundary(tokenizer: Tokenizer, *, parse: bool) -> list[tuple[str, str]]:
    """Give the pairs between which a token of their whole text ends and the next begins."""
    parsed = tuple(added_tokens(tokenizer)) if parse else ()
    left = [text for text in _LEFT if not text.rstrip().endswith(parsed)]
    pairs = list(product(left, _RIGHT))
    library = tokenizer.library()
    library.encode_special_tokens = not parse
    encodings = library.encode_batch([a + b for a, b in pairs], add_special_tokens=False)
    return [
        (a, b)
        for (a, b), encoding in zip(pairs, encodings, strict=True)
        if all(stop <= len(a) or start >= len(a) for start, stop in encoding.offsets)
    ]


def _behind(tokenizer: Tokenizer, strings: Collection[str]) -> dict[str, list[Sequence[int]]]:
    """Return the ids that the reference has for each probe behind each control token."""
    whole = tokenizer.library()
    whole.encode_special_tokens = False
    ids = {string: whole.token_to_id(string) for string in sorted(strings)}
    return {
        string: [_ids_behind(whole, string + text, ids[string]) for text in _PROBES]
        for string in ids
    }


def _encodes_so(tokenizer: Tokenizer) -> Callable[[list[Sequence[int]]], bool]:
    """Return what says of the probes' ids whether a tokenizer has them, for white space taken off
    as well."""  # noqa: D205, D209
    library = tokenizer.library()
    expected = [library.encode(text, add_special_tokens=False).ids for text in _PROBES]
    stripped = [library.encode(text.lstrip(), add_special_tokens=False).ids for text in _PROBES]
    return lambda found: found in (expected, stripped)


def _ids_behind(library: Any, text: str, control_id: int) -> Sequence[int]:
    ids: list[int] = library.encode(text, add_special_tokens=False).ids
    return ids[ids.index(control_id) + 1 :] if control_id in ids else ids
