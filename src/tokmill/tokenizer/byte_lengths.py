"""How many bytes of text each token stands for, where a tokenizer.json says that it is so.

Then the tokens of a text, end to end, have the byte ranges that a running sum gives. It holds where
no step changes the text but in ways that make the sum too small, or that are looked for (NFC).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.tokenizer.control_variant import added_tokens
from tokmill.tokenizer.cuts import SPACE_MARK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.tokenizer.tokenizer import Tokenizer

_SHRINKING = ("Split", "Digits", "Punctuation", "WhitespaceSplit", "Whitespace", "UnicodeScripts")
"""Pre-tokenizers that cut, and at most drop text; then the sum is too small."""

_SPACES_TO_MARKS = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE_MARK}


_UNFIT = 1 << 30
"""A length that no sum survives."""


@dataclass(frozen=True, slots=True)
class ByteLengths:
    """The bytes that tokens stand for.

    `lengths`: (vocab_size,) int32, indexed by id; 0 for an unknown token, and more than any text
    has for one that no sum may hold. `prefix`: whether the tokens of a text stand for one byte
    more, a space before it: `never`, `always` (unless the text is empty), or `unless_space` (that
    it begins with). `composes`: whether the text is normalized to NFC first: the lengths are those
    of a text that is in NFC.
    """

    lengths: npt.NDArray[np.int32]
    prefix: str
    composes: bool

    def n_prefix_bytes(self, text: pa.LargeStringArray) -> npt.NDArray[np.int64]:
        """Give for each of n texts, none empty, whether a prefix is put before it: (n,), 0 or 1."""
        import pyarrow.compute as pc

        if self.prefix == "never":
            return np.zeros(len(text), np.int64)
        if self.prefix == "always":
            return np.ones(len(text), np.int64)
        starts = pc.starts_with(text, " ").to_numpy(zero_copy_only=False)
        return np.asarray(~starts, np.int64)


def byte_lengths(tokenizer: Tokenizer) -> ByteLengths | None:
    """Give the bytes that each token of a tokenizer stands for.

    Lossless are byte-level BPE, and SentencePiece's way with marks for spaces. None where the text
    is normalized otherwise, or nothing is known about the parts of the tokenizer.
    """
    if not tokenizer.json:
        return None
    content = json.loads(tokenizer.json)
    normalizers = steps(content, "normalizer")
    splitters = steps(content, "pre_tokenizer")
    prefix = _prefix(normalizers, splitters)
    if prefix is None or not _is_lossless(normalizers, splitters) or not _is_plain(content):
        return None
    marks = _SPACES_TO_MARKS in normalizers or "Metaspace" in _types(splitters)
    alphabet = _alphabet() if "ByteLevel" in _types(splitters) else frozenset()
    if marks and alphabet:
        return None
    unknown = _unknown_id(content["model"])
    lengths = np.zeros(tokenizer.vocab_size, np.int32)
    for token, id_ in _vocabulary(content["model"]).items():
        lengths[id_] = _length(token, marks=marks, alphabet=alphabet)
    _set_byte_tokens(lengths, content["model"])
    for added in added_tokens(tokenizer).values():
        # Where an added token stands in a text, a prefix may come before what is behind it too.
        n_bytes = len(added.content.encode())
        lengths[added.id] = n_bytes if prefix == "never" else _UNFIT
    if unknown is not None:
        lengths[unknown] = 0
    return ByteLengths(lengths, prefix, composes="NFC" in _types(normalizers))


def is_composed(text: pa.LargeStringArray) -> npt.NDArray[np.bool_]:
    """Say for each of n texts whether NFC leaves it as it is: (n,) bool."""
    import pyarrow.compute as pc

    result = pc.string_is_ascii(text).to_numpy(zero_copy_only=False).copy()
    rest = np.flatnonzero(~result)
    if len(rest):
        chosen = text.take(rest)
        same = pc.equal(chosen, pc.utf8_normalize(chosen, form="NFC"))
        result[rest] = same.to_numpy(zero_copy_only=False)
    composed: npt.NDArray[np.bool_] = result
    return composed


def steps(content: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Give the steps of `normalizer` or `pre_tokenizer`, in order, out of all sequences."""
    inner = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers"}[key]

    def flat(part: Any) -> list[dict[str, Any]]:
        if not isinstance(part, dict):
            return []
        if part.get("type") != "Sequence":
            return [part]
        return [step for child in part.get(inner) or () for step in flat(child)]

    return flat(content.get(key))


def _types(found: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [step.get("type") for step in found]


def _prefix(
    normalizers: Sequence[Mapping[str, Any]], splitters: Sequence[Mapping[str, Any]]
) -> str | None:
    """Give when a space is put before a text; None where there may be more than one."""
    found = ["always" for step in normalizers if step.get("type") == "Prepend"]
    for position, step in enumerate(splitters):
        if adds_prefix(step):
            if position:  # before every part
                return None
            found.append("unless_space")
    if len(found) > 1:
        return None
    return found[0] if found else "never"


def adds_prefix(step: Mapping[str, Any]) -> bool:
    """Say whether a step of a pre-tokenizer puts a space before what it gets."""
    if step.get("type") == "ByteLevel":
        return bool(step.get("add_prefix_space", True))
    if step.get("type") == "Metaspace":
        scheme = step.get("prepend_scheme") or "always"
        return bool(step.get("add_prefix_space", True)) and scheme != "never"
    return False


def _is_lossless(
    normalizers: Sequence[Mapping[str, Any]], splitters: Sequence[Mapping[str, Any]]
) -> bool:
    for step in normalizers:
        is_prefix = step.get("type") == "Prepend" and step.get("prepend") == SPACE_MARK
        if not (is_prefix or step == _SPACES_TO_MARKS or step == {"type": "NFC"}):
            return False
    for step in splitters:
        if step.get("type") == "Metaspace" and step.get("replacement") != SPACE_MARK:
            return False
        if step.get("type") not in (*_SHRINKING, "ByteLevel", "Metaspace"):
            return False
    return True


def _is_plain(content: Mapping[str, Any]) -> bool:
    """Say whether the strings of the vocabulary are the text that they stand for."""
    model = content["model"]
    if model.get("type", "BPE" if "merges" in model else "Unigram") not in ("BPE", "Unigram"):
        return False
    return not (model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"))


def _vocabulary(model: Mapping[str, Any]) -> Mapping[str, int]:
    vocab = model["vocab"]
    return vocab if isinstance(vocab, dict) else {token: i for i, (token, _) in enumerate(vocab)}


def _unknown_id(model: Mapping[str, Any]) -> int | None:
    if isinstance(model.get("unk_id"), int):
        return int(model["unk_id"])
    return _vocabulary(model).get(model.get("unk_token") or "")


def _alphabet() -> frozenset[str]:
    """Give the 256 characters that `ByteLevel` writes for bytes."""
    from tokenizers.pre_tokenizers import ByteLevel

    return frozenset(ByteLevel.alphabet())


def _length(token: str, *, marks: bool, alphabet: frozenset[str]) -> int:
    if alphabet and alphabet.issuperset(token):
        return len(token)
    return len(token.encode()) - (2 * token.count(SPACE_MARK) if marks else 0)


def _set_byte_tokens(lengths: npt.NDArray[np.int32], model: Mapping[str, Any]) -> None:
    if not model.get("byte_fallback"):
        return
    vocab = _vocabulary(model)
    for byte in range(256):
        id_ = vocab.get(f"<0x{byte:02X}>")
        if id_ is not None:
            lengths[id_] = 1
