"""How many bytes of text each token stands for, where a tokenizer.json says that it is so.

Then the tokens of a text, end to end, have the byte ranges that a running sum gives. It holds where
no step changes the text but in ways that make the sum too small, or that are looked for (NFC).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.tokenizer.control_tokens import added_tokens
from tokmill.tokenizer.tokenizer_json import (
    SPACE_MARK,
    adds_prefix,
    byte_characters,
    byte_fallback_token,
    replace_step,
    step_types,
    steps,
    unknown_id,
    vocabulary,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.tokenizer.tokenizer import Tokenizer

_SHRINKING = ("Split", "Digits", "Punctuation", "WhitespaceSplit", "Whitespace", "UnicodeScripts")
"""Pre-tokenizers that cut, and at most drop text; then the sum is too small."""

_SPACES_TO_MARKS = replace_step({"String": " "}, SPACE_MARK)


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
    marks = _SPACES_TO_MARKS in normalizers or "Metaspace" in step_types(splitters)
    alphabet = (
        frozenset(byte_characters().values())
        if "ByteLevel" in step_types(splitters)
        else frozenset()
    )
    if marks and alphabet:
        return None
    vocab = vocabulary(content["model"])
    unknown = unknown_id(content["model"], vocab)
    lengths = np.zeros(tokenizer.vocab_size, np.int32)
    for token, id_ in vocab.items():
        lengths[id_] = _length(token, marks=marks, alphabet=alphabet)
    if content["model"].get("byte_fallback"):
        lengths[
            [vocab[token] for token in map(byte_fallback_token, range(256)) if token in vocab]
        ] = 1
    for added in added_tokens(tokenizer).values():
        # Where an added token stands in a text, a prefix may come before what is behind it too.
        n_bytes = len(added.content.encode())
        lengths[added.id] = n_bytes if prefix == "never" else _UNFIT
    if unknown is not None:
        lengths[unknown] = 0
    return ByteLengths(lengths, prefix, composes="NFC" in step_types(normalizers))


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


def _length(token: str, *, marks: bool, alphabet: frozenset[str]) -> int:
    if alphabet and alphabet.issuperset(token):
        return len(token)
    return len(token.encode()) - (2 * token.count(SPACE_MARK) if marks else 0)
