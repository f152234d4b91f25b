"""Text that a tokenizer cannot write: it becomes the unknown token, or vanishes.

A byte-level BPE with all 256 bytes, and a tokenizer that falls back to bytes, lose nothing. Others
write an unknown token, which is counted by its id. A BPE without one leaves out each character that
no token begins with; which characters those are is asked of the tokenizer, once for each character.
What the normalizer takes away, such as accents, is the tokenizer's intention and no loss.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.offsets import byte_offsets
from tokmill.tokenizer.sentencepiece_model import PieceType, read_model
from tokmill.tokenizer.tokenizer_json import (
    SPACE_MARK,
    byte_characters,
    byte_fallback_token,
    is_byte_level,
    outline,
    unknown_id,
    vocabulary,
)
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.tokenizer.tokenizer import Tokenizer

    Counters = dict[str, npt.NDArray[np.int64]]

UNKNOWN_TOKENS = "unknown tokens"
LOST_BYTES = "bytes of characters that no token writes"

_N_CODES = 0x110000
_SPACE = byte_characters()[ord(" ")]


class UnknownText:
    """Counts what a tokenizer cannot write; threads may share one.

    `unknown`: the id of the unknown token, None if there is none or nothing becomes it.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.unknown: int | None = None
        self._lost: _LostCharacters | None = None
        if not tokenizer.json:
            model = read_model(tokenizer.data, where=tokenizer.name)
            types = [piece.type for piece in model.pieces]
            if not model.byte_fallback:
                self.unknown = types.index(PieceType.UNKNOWN)
            return
        content = outline(tokenizer.json, where=tokenizer.name)
        ids = vocabulary(content["model"])
        if _writes_all_bytes(content, ids):
            return
        self.unknown = unknown_id(content["model"], ids)
        if self.unknown is None:
            self._lost = _LostCharacters(tokenizer)

    def in_tokens(
        self, ids: npt.NDArray[np.unsignedinteger], offsets: npt.NDArray[np.int64]
    ) -> Counters:
        """Return the unknown tokens of n documents with these offsets (n + 1,): (n,), if any."""
        if self.unknown is None:
            return {}
        found = np.flatnonzero(ids == self.unknown)
        return _by_document(UNKNOWN_TOKENS, found, np.ones(len(found), np.int64), offsets)

    def in_texts(self, text: pa.LargeStringArray) -> Counters:
        """Return the bytes of n texts that no token writes: (n,), if any."""
        if self._lost is None or not len(text):
            return {}
        ends = byte_offsets(text)
        data = bytes(text.buffers()[2] or b"")[int(ends[0]) : int(ends[-1])]
        codes = np.frombuffer(data.decode().encode("utf-32-le"), np.uint32)
        sizes = 1 + (codes >= 0x80) + (codes >= 0x800) + (codes >= 0x10000)  # bytes in UTF-8
        found = np.flatnonzero(self._lost.are_lost(codes))
        starts = np.cumsum(sizes) - sizes
        return _by_document(LOST_BYTES, starts[found], sizes[found], ends - ends[0])


def unknown_line(counters: Mapping[str, int], n_tokens: int, text_bytes: int) -> str:
    """Return what a tokenizer could not write, with its share; '' if nothing."""
    unknown, lost = counters.get(UNKNOWN_TOKENS, 0), counters.get(LOST_BYTES, 0)
    if unknown:
        share = unknown / max(1, n_tokens)
        return f"{plural(unknown, 'unknown token')} ({share:.2%} of the tokens)"
    if lost:
        share = lost / max(1, text_bytes)
        return (
            f"{plural(lost, 'byte')} of characters that no token writes ({share:.2%} of the text)"
        )
    return ""


def _by_document(
    name: str,
    found: npt.NDArray[np.int64],
    amounts: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
) -> Counters:
    """Return the sums of amounts at positions by the document that holds them."""
    if not len(found):
        return {}
    documents = np.searchsorted(offsets, found, "right") - 1
    sums = np.bincount(documents, amounts, minlength=len(offsets) - 1)
    return {name: sums.astype(np.int64)}


def _writes_all_bytes(content: dict[str, Any], ids: Mapping[str, int]) -> bool:
    """Return whether each of the 256 bytes has a token that a text can become."""
    if is_byte_level(content):
        return all(character in ids for character in byte_characters().values())
    if content["model"].get("byte_fallback"):
        return all(byte_fallback_token(byte) in ids for byte in range(256))
    return False


class _LostCharacters:
    """Knows which characters a tokenizer leaves out, by trying each once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        from tokenizers import Tokenizer as Library

        self._library = Library.from_str(tokenizer.json)
        self._is_known = np.zeros(_N_CODES, bool)
        self._is_lost = np.zeros(_N_CODES, bool)
        self._lock = threading.Lock()

    def are_lost(self, codes: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
        """Return whether each of n characters is left out: (n,)."""
        with self._lock:
            for code in np.unique(codes[~self._is_known[codes]]).tolist():
                self._is_lost[code] = self._try(chr(code))
                self._is_known[code] = True
        return self._is_lost[codes]

    def _try(self, character: str) -> bool:
        """Return whether a character, as the normalizer writes it, is in none of its tokens."""
        library = self._library
        text = character
        if library.normalizer is not None:
            text = library.normalizer.normalize_str(text)
        pieces = [text]
        if library.pre_tokenizer is not None:
            pieces = [piece for piece, _ in library.pre_tokenizer.pre_tokenize_str(text)]
        wanted = {c for c in "".join(pieces) if c not in (SPACE_MARK, _SPACE) and not c.isspace()}
        tokens = library.encode(character, add_special_tokens=False).tokens
        return not wanted.issubset("".join(tokens))
