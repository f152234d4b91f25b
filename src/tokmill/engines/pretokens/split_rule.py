"""Where a text can be split so that the tokens of its pretokens are the tokens of the text.

A `SplitRule` is derived from the parts of a tokenizer.json alone; without a proof there is none.

White space. Where a pre-tokenizer drops white space, a piece ends behind it. Where a word begins
with its space, so does a piece, if the character before is no white space. All steps behind work on
one word at a time. The normalizers that are let in work on one grapheme at a time: nothing is cut
beside a character that, at any step, may be one grapheme with its neighbour (`cut_points`).

Characters. `BertPreTokenizer` makes a word of every punctuation mark and `BertNormalizer` of every
Chinese character: both sides are cut. In a Unigram model a token ends between two characters that
stand side by side in no token of the vocabulary: every path goes through there, and either side has
its own best path (`unigram`). Only a run of unknown characters is one token across cuts.
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

# Of the first plane: what Unicode's Grapheme_Cluster_Break joins to a neighbour and is no mark and
# no control character; of the plane of emoji: flags and skin colours.
_JOINING = (
    *((0x0D4E, 0x0D4E), (0x0E33, 0x0E33), (0x0EB3, 0x0EB3), (0x1100, 0x11FF), (0xA960, 0xA97F)),
    *((0xD7B0, 0xD7FF), (0xFF9E, 0xFF9F), (0x1F1E6, 0x1F1FF), (0x1F3FB, 0x1F3FF)),
)
_NEW_SCRIPTS = (0x10000, 0x1EFFF)
"""Unicode still adds letters there that join their neighbours, and Pythons differ in knowing."""


@dataclass(frozen=True, slots=True)
class SplitRule:
    """What a tokenizer.json proves.

    `drops_space`: a piece ends behind white space; else it begins with its space.
    `lone_characters`: BERT's, each of which is a word.
    `followers`: the characters that stand behind a character in a token of a Unigram vocabulary;
    None where words are not cut. `word_ends`: what ends a word in normalized text, or begins one.
    `glued`: characters beside which nothing is cut.
    `normalizers`: the steps of the normalizer, as they stand. `composes`: whether the last one may
    make one character of what it made of two.
    """

    drops_space: bool
    lone_characters: bool
    followers: Mapping[str, frozenset[str]] | None
    word_ends: str
    glued: frozenset[str]
    normalizers: tuple[Mapping[str, Any], ...]
    composes: bool


def split_rule(content: Mapping[str, Any], *, parse: bool) -> SplitRule:
    """Derive where texts may be cut for a tokenizer.json.

    Args:
        content: it, parsed, without the parts that place tokens, cut or pad.
        parse: whether the strings of special added tokens in a text become those tokens.

    Raises:
        TokenizerError: nothing proves that the tokens of pieces are those of the text.
    """
    splitters = steps(content, "pre_tokenizer")
    normalizers = steps(content, "normalizer")
    for token in content.get("added_tokens") or ():
        if parse or not token.get("special"):
            raise TokenizerError(f"its added token {token['content']!r} may stand across a cut")
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
    """Say whether a character is a grapheme of its own beside any other such character.

    Nor is it composed with one, or sorted before it, by any of Unicode's normal forms.
    """
    if character <= "~":
        return character >= " " or character in "\n\t"
    category, code = unicodedata.category(character), ord(character)
    if category[0] not in "LNPS" and category != "Zs":
        return False
    return not any(first <= code <= last for first, last in (*_JOINING, _NEW_SCRIPTS))


def _drops_space(found: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether the pre-tokenizer drops white space; else it starts words with their space."""
    types = step_types(found)
    for step in found:
        if step.get("type") == "Metaspace" and step.get("replacement") != SPACE_MARK:
            raise TokenizerError(f"its Metaspace writes {step.get('replacement')!r} for a space")
    if types and types[0] in _DROPS_SPACE and _BY_WORD.issuperset(types[1:]):
        if any(step.get("prepend_scheme") == "first" for step in found):
            raise TokenizerError("its Metaspace treats the first word of a text as no other")
        return True
    splits = {"Metaspace": "split", "ByteLevel": "use_regex"}
    if len(found) == 1 and types[0] in splits and found[0].get(splits[types[0]]) is not False:
        if types == ["ByteLevel"] and found[0].get("add_prefix_space", True):
            raise TokenizerError("its ByteLevel puts a space before the first word of a text")
        return False
    names = ", ".join(map(str, types)) or "none"
    raise TokenizerError(f"its pre-tokenizer is not known to split at spaces: {names}")


def _word_ends(splitters: Sequence[Mapping[str, Any]]) -> str:
    """Give the characters at which words are cut apart, where no step cuts elsewhere too."""
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
    """Refuse normalizers that may see more of a text than one side of a cut."""
    is_known = True  # nothing has been written yet that might take a space into its grapheme
    for step in normalizers:
        type_ = step.get("type")
        if type_ not in _BY_GRAPHEME:
            raise TokenizerError(f"its normalizer {type_} may look beyond a word")
        if type_ == "Strip" and step.get("strip_left") and not drops_space:
            raise TokenizerError("its normalizer strips the space that a piece begins with")
        if type_ == "Precompiled" and not is_known:
            raise TokenizerError("its normalizer Precompiled may join what another one wrote")
        if type_ == "Replace":
            _check_replace(step, splitters, drops_space=drops_space)
        content = step.get("content") or ""
        is_known = is_known and type_ != "Precompiled" and all(map(is_plain, content))


def _check_replace(
    step: Mapping[str, Any], splitters: Sequence[Mapping[str, Any]], *, drops_space: bool
) -> None:
    """Refuse a pattern that may match across a cut.

    A run of spaces is never cut inside. But it may begin in what the character before a piece
    became, or end in what the one behind became, so what is made of it has to stay a space.
    """
    pattern, content = step["pattern"], step["content"]
    if pattern == _RUN_OF_SPACES:
        if content == " " or (content == SPACE_MARK and step_types(splitters) == ["Metaspace"]):
            return
        raise TokenizerError(f"its normalizer makes {content!r} of spaces")
    characters = pattern.get("String", "")
    if not characters or any(character.isspace() for character in characters):
        raise TokenizerError(f"its normalizer replaces {pattern}, which a cut may part")


def _glued(normalizers: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Give the characters that a normalizer sees together with their neighbours."""
    patterns = [step["pattern"] for step in normalizers if step.get("type") == "Replace"]
    return frozenset("".join(pattern.get("String", "") for pattern in patterns))


def _followers(
    model: Mapping[str, Any], splitters: Sequence[Mapping[str, Any]]
) -> Mapping[str, frozenset[str]] | None:
    """Give what stands behind each character in the tokens of a Unigram vocabulary."""
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
    """Say whether `unigram` covers a vocabulary.

    The library looks the string of a run of unknown tokens up. No token is one: each has a better
    score than two unknown characters, if scores are logarithms, and none is `<unk><unk>`.
    """
    return all(
        LOWEST_SCORE <= score <= 0 and token and (unknown not in token or token == unknown)
        for token, score in vocab
    )
