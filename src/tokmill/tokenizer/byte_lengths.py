"""How many bytes of text each token stands for, if a tokenizer.json determines it.

A running sum of these lengths gives the byte range of each token of a text. No step of such a
tokenizer changes the text, except in ways that make the sum too small, or are checked for (NFC).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unicodedata import is_normalized, normalize

import numpy as np

from tokmill.tokenizer.tokenizer_json import (
    SPACE_MARK,
    adds_prefix,
    byte_fallback_token,
    character_bytes,
    outline,
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

    Steps = Sequence[Mapping[str, Any]]

_SPLITTING = ("Split", "Digits", "Punctuation", "WhitespaceSplit", "Whitespace", "UnicodeScripts")
"""Pre-tokenizers that split, and may drop text: then the sum is too small."""

_SPACES_TO_MARKS = replace_step({"String": " "}, SPACE_MARK)

_UNKNOWN_LENGTH = 1 << 30
"""Sentinel so large that the sum check fails."""


@dataclass(frozen=True, slots=True)
class ByteLengths:
    """The bytes that tokens stand for.

    `lengths`: (vocab_size,) int32, indexed by id; 0 for an unknown token, `_UNKNOWN_LENGTH` for a
    token of no fixed length. `prefix`: whether the tokens of a text stand for one more byte, a
    space before the text: `never`, `always` (unless the text is empty), or `unless_space` (unless
    it begins with one). `composes`: whether the text is normalized to NFC first; then the lengths
    are those of a text in NFC, see `composed`.
    """

    lengths: npt.NDArray[np.int32]
    prefix: str
    composes: bool

    def n_prefix_bytes(self, text: pa.LargeStringArray) -> npt.NDArray[np.int64]:
        """Return whether a space is put before each of n texts, none empty: (n,), 0 or 1."""
        import pyarrow.compute as pc

        if self.prefix == "never":
            return np.zeros(len(text), np.int64)
        if self.prefix == "always":
            return np.ones(len(text), np.int64)
        starts = pc.starts_with(text, " ").to_numpy(zero_copy_only=False)
        return np.asarray(~starts, np.int64)


def byte_lengths(tokenizer: Tokenizer) -> ByteLengths | None:
    """Return the bytes that each token of a tokenizer stands for.

    Known for byte-level BPE, and for tokenizers that mark spaces as SentencePiece does. None if the
    text is normalized in another way, or a part of the tokenizer is unknown.
    """
    if not tokenizer.json:
        return None
    content = outline(tokenizer.json, where=tokenizer.name)
    model = content["model"]
    normalizers, splitters = steps(content, "normalizer"), steps(content, "pre_tokenizer")
    prefix = _prefix(normalizers, splitters)
    if prefix is None or not _is_lossless(normalizers, splitters) or not _is_plain(model):
        return None
    has_marks = _SPACES_TO_MARKS in normalizers or "Metaspace" in step_types(splitters)
    is_byte_level = "ByteLevel" in step_types(splitters)
    if has_marks and is_byte_level:
        return None
    vocab = vocabulary(model)
    lengths = np.zeros(tokenizer.vocab_size, np.int32)
    alphabet = frozenset(character_bytes())
    for token, id_ in vocab.items():
        if is_byte_level and alphabet.issuperset(token):
            lengths[id_] = len(token)
        else:
            lengths[id_] = len(token.encode()) - (2 * token.count(SPACE_MARK) if has_marks else 0)
    if model.get("byte_fallback"):
        tokens = map(byte_fallback_token, range(256))
        lengths[[vocab[token] for token in tokens if token in vocab]] = 1
    for added in tokenizer.added:
        # After an added token in a text, a prefix may be put before the rest too.
        n_bytes = len(added.content.encode())
        lengths[added.id] = n_bytes if prefix == "never" else _UNKNOWN_LENGTH
    unknown = unknown_id(model, vocab)
    if unknown is not None:
        lengths[unknown] = 0
    return ByteLengths(lengths, prefix, composes="NFC" in step_types(normalizers))


def composed(text: pa.LargeStringArray) -> pa.LargeStringArray:
    """Return texts in NFC."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ascii_ = pc.string_is_ascii(text).to_numpy(zero_copy_only=False)
    rest = np.flatnonzero(~ascii_)
    # Not `pc.utf8_normalize`: it is slower, and before pyarrow 26 it decomposes for NFC too.
    if all(is_normalized("NFC", string) for string in text.take(rest).to_pylist()):
        return text
    return pa.array([normalize("NFC", string) for string in text.to_pylist()], pa.large_string())


def _prefix(normalizers: Steps, splitters: Steps) -> str | None:
    """Return when a space is put before a text; None if there may be more than one."""
    prefixes = ["always" for step in normalizers if step.get("type") == "Prepend"]
    for position, step in enumerate(splitters):
        if adds_prefix(step):
            if position:  # before every pretoken
                return None
            prefixes.append("unless_space")
    if len(prefixes) > 1:
        return None
    return prefixes[0] if prefixes else "never"


def _is_lossless(normalizers: Steps, splitters: Steps) -> bool:
    """Return whether steps change nothing in a text but its composition, prefix and spaces."""
    for step in normalizers:
        is_prefix = step.get("type") == "Prepend" and step.get("prepend") == SPACE_MARK
        if not (is_prefix or step == _SPACES_TO_MARKS or step == {"type": "NFC"}):
            return False
    for step in splitters:
        if step.get("type") == "Metaspace" and step.get("replacement") != SPACE_MARK:
            return False
        if step.get("type") not in (*_SPLITTING, "ByteLevel", "Metaspace"):
            return False
    return True


def _is_plain(model: Mapping[str, Any]) -> bool:
    """Return whether the strings of a model's vocabulary are the text that they stand for."""
    if model.get("type", "BPE" if "merges" in model else "Unigram") not in ("BPE", "Unigram"):
        return False
    return not (model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"))
