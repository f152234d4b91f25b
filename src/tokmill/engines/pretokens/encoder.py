"""Encodes single pieces of text with the reference library."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tokmill.engines.pretokens.table import PretokenIds
from tokmill.engines.pretokens.unigram import LONGEST_PART, Unigram

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tokmill.engines.pretokens.split_rule import SplitRule

INSIDE = b"\xff"
"""Before a piece that begins inside a word; the byte stands in no UTF-8."""

_NO_MODEL = {"type": "WordLevel", "vocab": {}, "unk_token": ""}


class PretokenEncoder:
    """The library, whole and in parts.

    Args:
        content: a parsed tokenizer.json.
        rule: where texts are cut for it.
    """

    def __init__(self, content: Mapping[str, Any], rule: SplitRule) -> None:
        from tokenizers import Tokenizer as Library

        model = content["model"]
        self._cuts_words = rule.followers is not None
        self._whole = Library.from_str(json.dumps(content))
        self._whole.encode_special_tokens = True
        self._splitter = self._whole.pre_tokenizer
        self.normalizers = tuple(map(_normalizer, rule.normalizers))
        if self._cuts_words:
            self._unknown = [model["unk_id"]]
            self._unigram = Unigram(model["vocab"], model["unk_id"])
            self._word_end = re.compile(f"[{rule.word_ends}]")
            self._normalized = Library(self._whole.model)
            self._normalized.pre_tokenizer = self._splitter

    def words(self, text: str) -> list[str]:
        """Give the words of a normalized text."""
        return [word for word, _ in self._splitter.pre_tokenize_str(text)]

    def encode(self, pieces: Sequence[bytes]) -> list[PretokenIds]:
        """Give the ids of pieces; those that begin inside a word follow `INSIDE`.

        All pieces of a call begin a word, or none does.
        """
        if pieces and pieces[0].startswith(INSIDE):
            return self._encode_inside([piece[len(INSIDE) :].decode() for piece in pieces])
        texts = [piece.decode() for piece in pieces]
        ids = _batch(self._whole, texts)
        if not self._cuts_words:
            return [PretokenIds(piece) for piece in ids]
        return [
            PretokenIds(
                piece,
                alone=len(self._normalize(text)) > LONGEST_PART,
                ends_unknown=piece[-1:] == self._unknown,
            )
            for text, piece in zip(texts, ids, strict=True)
        ]

    def _encode_inside(self, pieces: Sequence[str]) -> list[PretokenIds]:
        """Encode the end of a word by the model alone, and what follows as words."""
        split = [self._split(self._normalize(piece)) for piece in pieces]
        behind = iter(_batch(self._normalized, [rest for _, rest in split if rest]))
        result = []
        for head, rest in split:
            ids = self._unigram.encode(head)
            more = next(behind) if rest else []
            if ids is None:
                result.append(PretokenIds([], alone=True))
                continue
            continues = ids[:1] == self._unknown
            more = ids + more
            ends = more[-1:] == self._unknown
            result.append(PretokenIds(more, continues_unknown=continues, ends_unknown=ends))
        return result

    def _normalize(self, text: str) -> str:
        for normalize in self.normalizers:
            text = normalize(text)
        return text

    def _split(self, normal: str) -> tuple[str, str]:
        """Cut normalized text where the word ends that it begins in."""
        found = self._word_end.search(normal)
        if found is None:
            return normal, ""
        return normal[: found.start()], normal[found.start() :]


def _normalizer(step: Mapping[str, Any]) -> Callable[[str], str]:
    """Load one step of a normalizer."""
    from tokenizers import Tokenizer as Library

    library = Library.from_str(json.dumps({"normalizer": step, "model": _NO_MODEL}))
    normalize: Callable[[str], str] = library.normalizer.normalize_str
    return normalize


def _batch(library: Any, texts: Sequence[str]) -> list[list[int]]:
    """Give the ids of texts."""
    encoded = library.encode_batch_fast(texts, add_special_tokens=False)
    return [encoding.ids for encoding in encoded]
