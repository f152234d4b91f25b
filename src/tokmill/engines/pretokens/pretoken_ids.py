"""The ids of pretokens: encoded once by the reference library, then looked up in arrays."""

from __future__ import annotations

import json
import re
import threading
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokmill.engines.pretokens.unigram import LONGEST_PART, Unigram

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from tokmill.engines.pretokens.split_rule import SplitRule

INSIDE = b"\xff"
"""Marks a pretoken that begins inside a word; UTF-8 never contains this byte."""

_NO_MODEL = {"type": "WordLevel", "vocab": {}, "unk_token": ""}

_ENTRY_BYTES = 200
"""Of an entry besides its bytes and ids, about: two objects and a place in a dict."""


class PretokenIds(NamedTuple):
    """The ids of one pretoken.

    `alone`: they are valid only if the pretoken is a complete word. `continues_unknown`: begins
    with an unknown token, which merges with that of a pretoken before it that `ends_unknown`.
    """

    ids: Sequence[int]
    alone: bool = False
    continues_unknown: bool = False
    ends_unknown: bool = False


class PretokenTable:
    """Maps pretokens to slots, and slots to ids; safe to call from several threads.

    Entries are only appended, and a slot is published after its data is written. So readers need
    no lock, even while arrays are replaced by longer ones.
    """

    def __init__(self, encode: Callable[[Sequence[bytes]], Sequence[PretokenIds]]) -> None:
        self._encode = encode
        self._lock = threading.Lock()
        self._slots: dict[bytes, int] = {}
        self._ids = np.zeros(1 << 12, np.uint32)
        self._starts = np.zeros(1 << 10, np.int64)
        self._lengths = np.zeros(1 << 10, np.int64)
        self._alone = np.zeros(1 << 10, np.bool_)
        self._continues = np.zeros(1 << 10, np.bool_)
        self._ends = np.zeros(1 << 10, np.bool_)
        self._n_ids = 0
        self.n_bytes = 0

    def slots(self, pretokens: Sequence[bytes]) -> npt.NDArray[np.int64]:
        """Return the slots of different pretokens: (n,)."""
        known = self._slots
        if any(pretoken not in known for pretoken in pretokens):
            with self._lock:
                self._learn([pretoken for pretoken in pretokens if pretoken not in known])
        return np.fromiter(map(known.__getitem__, pretokens), np.int64, len(pretokens))

    def alone(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which pretokens have ids only as complete words: (n,)."""
        return self._alone[slots]

    def gather(
        self, slots: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """Return the concatenated ids of pretokens, and the end of each: (n_ids,) and (n,)."""
        starts, lengths = self._starts[slots], self._lengths[slots]
        continued = self._continues[slots[1:]]
        continued &= self._ends[slots[:-1]]
        if continued.any():
            starts[1:] += continued
            lengths[1:] -= continued
        ends = np.cumsum(lengths)
        n_ids = int(ends[-1]) if len(ends) else 0
        places = np.repeat(starts - (ends - lengths), lengths)
        places += np.arange(n_ids)
        return self._ids[places], ends

    def _learn(self, pretokens: Sequence[bytes]) -> None:
        learned = self._encode(pretokens)
        lengths = np.fromiter((len(pretoken.ids) for pretoken in learned), np.int64, len(learned))
        starts = self._n_ids + np.cumsum(lengths) - lengths
        n_slots, n_ids = len(self._slots), int(lengths.sum())
        ids = np.fromiter(
            chain.from_iterable(pretoken.ids for pretoken in learned), np.uint32, n_ids
        )
        self._ids = _appended(self._ids, self._n_ids, ids)
        self._starts = _appended(self._starts, n_slots, starts)
        self._lengths = _appended(self._lengths, n_slots, lengths)
        self._alone = _appended(self._alone, n_slots, [p.alone for p in learned])
        self._continues = _appended(
            self._continues, n_slots, [p.continues_unknown for p in learned]
        )
        self._ends = _appended(self._ends, n_slots, [p.ends_unknown for p in learned])
        self._n_ids += n_ids
        self.n_bytes += sum(map(len, pretokens)) + 4 * n_ids + _ENTRY_BYTES * len(learned)
        self._slots.update(zip(pretokens, range(n_slots, n_slots + len(learned)), strict=True))


def _appended(array: npt.NDArray[Any], n: int, values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Write values after the first n; into a copy of twice the length if they do not fit."""
    values = np.asarray(values, array.dtype)
    stop = n + len(values)
    if stop > len(array):
        longer = np.zeros(max(stop, 2 * len(array)), array.dtype)
        longer[:n] = array[:n]
        array = longer
    array[n:stop] = values
    return array


class PretokenEncoder:
    """The library, complete and in parts, for a parsed tokenizer.json and its split rule."""

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
