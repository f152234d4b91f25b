"""The reference with a memory: a text is cut into pieces, and each piece is encoded once.

For tokenizers that no fast engine knows, where their own parts prove that the tokens of pieces are
the tokens of the text (`cuts`). Words repeat: of 53 MB of English, 0.15 million of 14 million
pieces are new to BERT.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokmill.engines.engine import EngineRow
from tokmill.engines.pretokens.encoder import INSIDE, PretokenEncoder
from tokmill.engines.pretokens.split_points import SplitPoints
from tokmill.engines.pretokens.split_rule import split_rule
from tokmill.engines.pretokens.table import PretokenTable
from tokmill.engines.pretokens.unigram import LONGEST_WORD_BYTES
from tokmill.errors import TokenizerError
from tokmill.offsets import byte_offsets, concat_tokens, split_by_bytes
from tokmill.values import TokenBatch

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.tokenizer.tokenizer import Tokenizer

_CALL_BYTES = 2 << 20
"""Text per step: the arrays of a step take about 20 times as much."""

_TABLE_BYTES = 128 << 20
"""A table that has grown past this makes room for an empty one."""


_INSIDE, _WORD = 1, 2
"""A piece begins there: inside a word, or with one."""


class CachedReference:
    """`tokenizers`, asked once about each piece of text.

    Its memory is bounded by itself, since a table costs nothing to load.

    Raises:
        TokenizerError: nothing proves where texts may be cut.
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
        self._cuts_words = rule.followers is not None
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
        starts, slots = self._pieces(data, offsets - start, table)
        ids, ends = table.gather(slots)
        bounds = np.searchsorted(starts, offsets - start)  # documents begin with a piece
        return TokenBatch(ids, np.concatenate([[0], ends])[bounds])

    def _pieces(
        self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], table: PretokenTable
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Give where the pieces of documents start, and their slots: (n,) each."""
        cuts, begins_word = self._points.find(data)
        marks = np.zeros(len(data) + 1, np.uint8)
        marks[cuts] = _INSIDE
        marks[cuts[begins_word]] = _WORD
        marks[offsets] = _WORD
        starts = np.flatnonzero(marks[:-1])
        if self._cuts_words:
            return _pieces_of_words(data, starts, marks[starts] == _INSIDE, table)
        different, which = _different(data, starts)
        return starts, table.slots(different)[which]


ENGINE = EngineRow(CachedReference, packages=("tokenizers",), distribution="tokenizers")


def _different(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]
) -> tuple[list[bytes], npt.NDArray[np.int32]]:
    """Give every different piece once, and for each of n pieces which one it is: (n,)."""
    bounds = np.append(starts, len(data))  # 64 bits: a document may have more than 2 GiB
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    encoded = pa.Array.from_buffers(pa.large_binary(), len(starts), buffers).dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


def _pieces_of_words(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    is_inside: npt.NDArray[np.bool_],
    table: PretokenTable,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Give where pieces start, and their slots, where some begin inside a word: (n,) each.

    A word that is too long, or has a piece that is none by itself, becomes one piece.
    """
    slots = _slots_of_parts(data, starts, is_inside, table)
    first = np.flatnonzero(~is_inside)
    bounds = np.append(starts[first], len(data))
    is_whole = np.diff(bounds) > LONGEST_WORD_BYTES
    word = np.cumsum(~is_inside) - 1
    is_whole[word[table.alone(slots)]] = True
    if not is_whole.any():
        return starts, slots
    places = np.flatnonzero(is_whole).tolist()
    words = [data[bounds[i] : bounds[i + 1]].tobytes() for i in places]
    different = list(dict.fromkeys(words))
    slot_of = dict(zip(different, table.slots(different).tolist(), strict=True))
    slots[first[is_whole]] = [slot_of[piece] for piece in words]
    keep = ~(is_inside & is_whole[word])
    return starts[keep], slots[keep]


def _slots_of_parts(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    is_inside: npt.NDArray[np.bool_],
    table: PretokenTable,
) -> npt.NDArray[np.int64]:
    """Give the slot of each of n pieces; the same bytes have two, inside a word and not: (n,)."""
    different, which = _different(data, starts)
    which = 2 * which + is_inside
    comes = np.zeros(2 * len(different), np.bool_)
    comes[which] = True
    slots = np.zeros(2 * len(different), np.int64)
    for inside, marker in enumerate((b"", INSIDE)):
        used = np.flatnonzero(comes[inside::2])
        slots[inside::2][used] = table.slots([marker + different[i] for i in used.tolist()])
    return slots[which]
