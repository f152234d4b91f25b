"""Where a text can be split so that the tokens of its pretokens are the tokens of the text.

A `SplitRule` is derived from the parts of a tokenizer.json alone; without a proof there is none.

White space. If a pre-tokenizer drops white space, a pretoken ends after it. If a word begins with
its space, so does a pretoken, unless the character before is white space. All later steps work on
single words. The allowed normalizers work on single graphemes: no split point is beside a character
that, at any step, may be one grapheme with its neighbour (`split_points`).

Characters. `BertPreTokenizer` makes a word of every punctuation mark, `BertNormalizer` of every
Chinese character: both have a split point on each side. In a Unigram model a token ends between two
characters that are neighbours in no token of the vocabulary: every path goes through that place,
and each side has its own best path (`unigram`). Only unknown characters can form one token across
split points.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tokmill.engines.pretokens.unigram import LOWEST_SCORE
from tokmill.errors import TokenizerError
from tokmill.tokenizer.tokenizer_json import SPACE_MARK, WHITE_SPACE, step_types, steps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DROPS_SPACE = ("BertPreTokenizer", "WhitespaceSplit", "Whitespace")
_BY_WORD = {"Metaspace", "Punctuation", "Digits", "ByteLevel", "Split", "BertPreTokenizer"}
_BY_GRAPHEME = {
    *("BertNormalizer", "Precompiled", "NFC", "NFD", "NFKC", "NFKD"),
    *("Lowercase", "StripAccents", "Nmt", "Strip", "Replace"),
}
_COMPOSING = ("NFC", "NFKC")
_OF_UNIGRAM = (["WhitespaceSplit"], ["WhitespaceSplit", "Metaspace"], ["Metaspace"])
_RUN_OF_SPACES = {"Regex": " {2,}"}

# Characters that Grapheme_Cluster_Break joins to a neighbour, except marks and control characters:
# all of the first plane; flags and skin colours of the plane of emoji.
_JOINING = (
    *((0x0D4E, 0x0D4E), (0x0E33, 0x0E33), (0x0EB3, 0x0EB3), (0x1100, 0x11FF), (0xA960, 0xA97F)),
    *((0xD7B0, 0xD7FF), (0xFF9E, 0xFF9F), (0x1F1E6, 0x1F1FF), (0x1F3FB, 0x1F3FF)),
)
_NEW_SCRIPTS = (0x10000, 0x1EFFF)
"""Unicode still adds letters there that join their neighbours; Python versions differ."""


@dataclass(frozen=True, slots=True)
class SplitRule:
    """Where the texts of a tokenizer.json can be split.

    `drops_space`: a pretoken ends after white space; else it begins with its space.
    `lone_characters`: characters that are words can be split off (BERT). `followers`: for each
    character, those after it in tokens of a Unigram vocabulary; None if words are not split.
    `word_ends`: characters that end or begin a word in normalized text. `glued`: characters without
    a split point beside them. `normalizers`: the steps of the normalizer. `composes`: whether the
    last one may compose characters that it made of two others.
    """

    drops_space: bool
    lone_characters: bool
    followers: Mapping[str, frozenset[str]] | None
    word_ends: str
    glued: frozenset[str]
    normalizers: tuple[Mapping[str, Any], ...]
    composes: bool


def split_rule(content: Mapping[str, Any], *, parse: bool) -> SplitRule:
    """Derive where the texts of a tokenizer.json can be split.

    `content` has no parts that add tokens, truncate or pad. `parse`: whether the strings of special
    added tokens in a text become those tokens.

    Raises:
        TokenizerError: there is no proof for any split point.
    """
    splitters = steps(content, "pre_tokenizer")
    normalizers = steps(content, "normalizer")
    for token in content.get("added_tokens") or ():
        if parse or not token.get("special"):
            raise TokenizerError(f"its added token {token['content']!r} may cross a split point")
    drops_space = _drops_space(splitters)
    _check_normalizers(normalizers, splitters, drops_space=drops_space)
    return SplitRule(
        drops_space=drops_space,
        lone_characters=step_types(splitters) == ["BertPreTokenizer"],
        followers=_followers(content["model"], splitters),
        word_ends=_word_ends(splitters),
        glued=_glued(normalizers),
        normalizers=tuple(normalizers),
        composes=step_types(normalizers[-1:]) in [[name] for name in _COMPOSING],
    )


def is_plain(character: str) -> bool:
    """Return whether a character is always a grapheme of its own beside other such characters.

    No Unicode normal form composes it with one of them, or reorders them.
    """
    if character <= "~":
        return character >= " " or character in "\n\t"
    category, code = unicodedata.category(character), ord(character)
    if category[0] not in "LNPS" and category != "Zs":
        return False
    return not any(first <= code <= last for first, last in (*_JOINING, _NEW_SCRIPTS))


def _drops_space(found: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the pre-tokenizer drops white space; else words begin with their space."""
    types = step_types(found)
    for step in found:
        if step.get("type") == "Metaspace" and step.get("replacement") != SPACE_MARK:
            raise TokenizerError(f"its Metaspace replaces a space by {step.get('replacement')!r}")
    if types and types[0] in _DROPS_SPACE and _BY_WORD.issuperset(types[1:]):
        if any(step.get("prepend_scheme") == "first" for step in found):
            raise TokenizerError("its Metaspace treats the first word of a text differently")
        return True
    splits = {"Metaspace": "split", "ByteLevel": "use_regex"}
    if len(found) == 1 and types[0] in splits and found[0].get(splits[types[0]]) is not False:
        if types == ["ByteLevel"] and found[0].get("add_prefix_space", True):
            raise TokenizerError("its ByteLevel puts a space before the first word of a text")
        return False
    names = ", ".join(map(str, types)) or "none"
    raise TokenizerError(f"its pre-tokenizer is not known to split at spaces: {names}")


def _word_ends(splitters: Sequence[Mapping[str, Any]]) -> str:
    """Return the characters at which words are split, if no step splits elsewhere too."""
    ends = ""
    for step in splitters:
        if step.get("type") == "WhitespaceSplit":
            ends += WHITE_SPACE
        elif step.get("type") == "Metaspace" and step.get("split") is not False:
            ends += " " + SPACE_MARK
    return ends


def _check_normalizers(
    normalizers: Sequence[Mapping[str, Any]],
    splitters: Sequence[Mapping[str, Any]],
    *,
    drops_space: bool,
) -> None:
    """Refuse normalizers that may look at both sides of a split point."""
    is_known = True  # no step so far writes a character that could join a space
    for step in normalizers:
        type_ = step.get("type")
        if type_ not in _BY_GRAPHEME:
            raise TokenizerError(f"its normalizer {type_} may look beyond a word")
        if type_ == "Strip" and step.get("strip_left") and not drops_space:
            raise TokenizerError("its normalizer strips the space at the start of a word")
        if type_ == "Precompiled" and not is_known:
            raise TokenizerError(
                "its normalizer Precompiled may join characters of an earlier normalizer"
            )
        if type_ == "Replace":
            _check_replace(step, splitters, drops_space=drops_space)
        content = step.get("content") or ""
        is_known = is_known and type_ != "Precompiled" and all(map(is_plain, content))


def _check_replace(
    step: Mapping[str, Any], splitters: Sequence[Mapping[str, Any]], *, drops_space: bool
) -> None:
    """Refuse a pattern that may match across a split point.

    No split point is inside a run of spaces. But the run may begin in the normalized character
    before a pretoken, or end in the one after it, so its replacement must be a space too.
    """
    pattern, content = step["pattern"], step["content"]
    if pattern == _RUN_OF_SPACES:
        if content == " " or (content == SPACE_MARK and step_types(splitters) == ["Metaspace"]):
            return
        raise TokenizerError(f"its normalizer replaces spaces by {content!r}")
    characters = pattern.get("String", "")
    if not characters or any(character.isspace() for character in characters):
        raise TokenizerError(f"its normalizer replaces {pattern}, which a split point may divide")


def _glued(normalizers: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return the characters of patterns, which a normalizer matches with their neighbours."""
    patterns = [step["pattern"] for step in normalizers if step.get("type") == "Replace"]
    return frozenset("".join(pattern.get("String", "") for pattern in patterns))


def _followers(
    model: Mapping[str, Any], splitters: Sequence[Mapping[str, Any]]
) -> Mapping[str, frozenset[str]] | None:
    """Return the characters after each character in the tokens of a Unigram vocabulary."""
    is_unigram = model.get("type", "Unigram") == "Unigram" and isinstance(model.get("unk_id"), int)
    if not is_unigram or model.get("byte_fallback") or step_types(splitters) not in _OF_UNIGRAM:
        return None
    if not _is_plain_vocabulary(model["vocab"], model["vocab"][model["unk_id"]][0]):
        return None
    followers = defaultdict(set)
    for token, _ in model["vocab"]:
        for first, second in pairwise(token):
            followers[first].add(second)
    return {first: frozenset(seconds) for first, seconds in followers.items()}


def _is_plain_vocabulary(vocab: Sequence[tuple[str, float]], unknown: str) -> bool:
    """Return whether `unigram` supports a vocabulary.

    The library looks up the string of consecutive unknown tokens. No token may equal it: a token
    has a better score than two unknown characters, if scores are logarithms, and none is
    `<unk><unk>`.
    """
    return all(
        LOWEST_SCORE <= score <= 0 and token and (unknown not in token or token == unknown)
        for token, score in vocab
    )
