"""The reference with a cache: a text is split into pretokens, and each pretoken is encoded once.

For tokenizers that no fast engine supports, if their parts prove that the tokens of the pretokens
are the tokens of the text (`pretokens.split_rule`). Words repeat: of the 14 million pretokens of
53 MB of English, BERT has 0.15 million different ones.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokmill.engines.engine import EngineRow
from tokmill.engines.pretokens.pretoken_ids import INSIDE, PretokenEncoder, PretokenTable
from tokmill.engines.pretokens.split_points import SplitPoints
from tokmill.engines.pretokens.split_rule import split_rule
from tokmill.engines.pretokens.unigram import LONGEST_WORD_BYTES
from tokmill.errors import TokenizerError
from tokmill.offsets import byte_offsets, concat_tokens, split_by_bytes
from tokmill.values import TokenBatch

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.tokenizer.tokenizer import Tokenizer

_CALL_BYTES = 2 << 20
"""Text per call: its arrays take about 20 times as much."""

_TABLE_BYTES = 128 << 20
"""A larger table is replaced by an empty one."""

_INSIDE, _WORD = 1, 2
"""A pretoken begins there: inside a word, or with it."""


class CachedReference:
    """`tokenizers`, called once for each different pretoken; limits its own memory.

    Raises:
        TokenizerError: no split points can be proven for the tokenizer.
    """

    name = "tokenizers+cache"
    renewable = False
    concurrent = True

    def __init__(self, tokenizer: Tokenizer, *, parse: bool, n_threads: int = 1) -> None:
        content = json.loads(tokenizer.json)
        try:
            rule = split_rule(content, parse=parse)
            self._encoder = PretokenEncoder(content, rule)
            self._points = SplitPoints(rule, self._encoder.normalizers, self._encoder.words)
        except TokenizerError as error:
            raise TokenizerError(f"engine {self.name} refuses {tokenizer.name}: {error}") from None
        self._splits_words = rule.followers is not None
        self._table = PretokenTable(self._encoder.encode)

    def encode(self, text: pa.LargeStringArray) -> TokenBatch:
        """Encode documents; see `Engine`."""
        if not len(text):
            return TokenBatch(np.zeros(0, np.uint32), np.zeros(1, np.int64))
        return concat_tokens(
            [self._call(documents) for documents in split_by_bytes(text, _CALL_BYTES)]
        )

    def _call(self, text: pa.LargeStringArray) -> TokenBatch:
        offsets = byte_offsets(text)
        start, stop = int(offsets[0]), int(offsets[-1])
        if start == stop:
            return TokenBatch(np.zeros(0, np.uint32), np.zeros(len(offsets), np.int64))
        table = self._table
        if table.n_bytes > _TABLE_BYTES:
            table = self._table = PretokenTable(self._encoder.encode)
        data = np.frombuffer(text.buffers()[2], np.uint8)[start:stop]
        starts, slots = self._pretokens(data, offsets - start, table)
        ids, ends = table.gather(slots)
        bounds = np.searchsorted(starts, offsets - start)  # a document begins with a pretoken
        return TokenBatch(ids, np.concatenate([[0], ends])[bounds])

    def _pretokens(
        self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], table: PretokenTable
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the starts of the pretokens of documents, and their slots: (n,) each."""
        points, begins_word = self._points.find(data)
        marks = np.zeros(len(data) + 1, np.uint8)
        marks[points] = _INSIDE
        marks[points[begins_word]] = _WORD
        marks[offsets] = _WORD
        starts = np.flatnonzero(marks[:-1])
        if self._splits_words:
            return _join_parts_of_words(data, starts, marks[starts] == _INSIDE, table)
        different, index = _distinct(data, starts)
        return starts, table.slots(different)[index]


ENGINE = EngineRow(CachedReference, packages=("tokenizers",), distribution="tokenizers")


def _distinct(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]
) -> tuple[list[bytes], npt.NDArray[np.int32]]:
    """Return the different pretokens, and the index of each of n pretokens among them: (n,)."""
    bounds = np.append(starts, len(data))  # 64 bits: a document may have more than 2 GiB
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    encoded = pa.Array.from_buffers(pa.large_binary(), len(starts), buffers).dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


def _join_parts_of_words(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    is_inside: npt.NDArray[np.bool_],
    table: PretokenTable,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the starts of pretokens, some inside words, and their slots: (n,) each.

    A word that is too long, or has a pretoken that cannot be encoded alone, becomes one pretoken.
    """
    slots = _slots_of_pretokens(data, starts, is_inside, table)
    first = np.flatnonzero(~is_inside)
    bounds = np.append(starts[first], len(data))
    is_joined = np.diff(bounds) > LONGEST_WORD_BYTES
    word = np.cumsum(~is_inside) - 1
    is_joined[word[table.alone(slots)]] = True
    if not is_joined.any():
        return starts, slots
    places = np.flatnonzero(is_joined).tolist()
    words = [data[bounds[i] : bounds[i + 1]].tobytes() for i in places]
    different = list(dict.fromkeys(words))
    slot_of = dict(zip(different, table.slots(different).tolist(), strict=True))
    slots[first[is_joined]] = [slot_of[one] for one in words]
    keep = ~(is_inside & is_joined[word])
    return starts[keep], slots[keep]


def _slots_of_pretokens(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    is_inside: npt.NDArray[np.bool_],
    table: PretokenTable,
) -> npt.NDArray[np.int64]:
    """Return the slot of each of n pretokens: (n,). Those inside a word have other slots."""
    different, index = _distinct(data, starts)
    index = 2 * index + is_inside
    is_used = np.zeros(2 * len(different), np.bool_)
    is_used[index] = True
    slots = np.zeros(2 * len(different), np.int64)
    for inside, marker in enumerate((b"", INSIDE)):
        used = np.flatnonzero(is_used[inside::2])
        slots[inside::2][used] = table.slots([marker + different[i] for i in used.tolist()])
    return slots[index]
