"""Encodes single pretokens with the reference library."""

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
"""Marks a pretoken that begins inside a word; UTF-8 never contains this byte."""

_NO_MODEL = {"type": "WordLevel", "vocab": {}, "unk_token": ""}


class PretokenEncoder:
    """The library, complete and in parts.

    Args:
        content: a parsed tokenizer.json.
        rule: where its texts are split.
    """

    def __init__(self, content: Mapping[str, Any], rule: SplitRule) -> None:
        from tokenizers import Tokenizer as Library

        model = content["model"]
        self._splits_words = rule.followers is not None
        self._library = Library.from_str(json.dumps(content))
        self._library.encode_special_tokens = True
        self._splitter = self._library.pre_tokenizer
        self.normalizers = tuple(map(_normalizer, rule.normalizers))
        if self._splits_words:
            self._unknown = [model["unk_id"]]
            self._unigram = Unigram(model["vocab"], model["unk_id"])
            self._word_end = re.compile(f"[{rule.word_ends}]")
            self._normalized = Library(self._library.model)
            self._normalized.pre_tokenizer = self._splitter

    def words(self, text: str) -> list[str]:
        """Return the words of a normalized text."""
        return [word for word, _ in self._splitter.pre_tokenize_str(text)]

    def encode(self, pretokens: Sequence[bytes]) -> list[PretokenIds]:
        """Return the ids of pretokens; either all begin with `INSIDE` or none does."""
        if pretokens and pretokens[0].startswith(INSIDE):
            return self._encode_inside([pretoken[len(INSIDE) :].decode() for pretoken in pretokens])
        texts = [pretoken.decode() for pretoken in pretokens]
        ids = _batch(self._library, texts)
        if not self._splits_words:
            return [PretokenIds(found) for found in ids]
        return [
            PretokenIds(
                found,
                alone=len(self._normalize(text)) > LONGEST_PART,
                ends_unknown=found[-1:] == self._unknown,
            )
            for text, found in zip(texts, ids, strict=True)
        ]

    def _encode_inside(self, pretokens: Sequence[str]) -> list[PretokenIds]:
        """Encode the rest of a word with the model alone, and the text after it as words."""
        split = [self._split(self._normalize(pretoken)) for pretoken in pretokens]
        after = iter(_batch(self._normalized, [rest for _, rest in split if rest]))
        result = []
        for head, rest in split:
            ids = self._unigram.encode(head)
            more = next(after) if rest else []
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
        """Split normalized text at the end of the word that it begins in."""
        found = self._word_end.search(normal)
        if found is None:
            return normal, ""
        return normal[: found.start()], normal[found.start() :]


def _normalizer(step: Mapping[str, Any]) -> Callable[[str], str]:
    """Return one step of a normalizer as a function."""
    from tokenizers import Tokenizer as Library

    library = Library.from_str(json.dumps({"normalizer": step, "model": _NO_MODEL}))
    normalize: Callable[[str], str] = library.normalizer.normalize_str
    return normalize


def _batch(library: Any, texts: Sequence[str]) -> list[list[int]]:
    """Return the ids of texts."""
    encoded = library.encode_batch_fast(texts, add_special_tokens=False)
    return [encoding.ids for encoding in encoded]
