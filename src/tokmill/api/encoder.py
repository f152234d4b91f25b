"""Texts to ids at the speed of a run, with its proofs: in a pipeline of one's own.

The engine is chosen and compared with the reference once, when an `Encoder` is made. It can be
sent to other processes, which load the engine with their first texts. A share of all text is
encoded by the reference, too, as in a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import pyarrow as pa

from tokmill.dataset.layout import token_dtype
from tokmill.engines.choose import LEAST_BYTES
from tokmill.errors import RecordError, UsageError
from tokmill.offsets import byte_offsets, split_by_bytes
from tokmill.recipes.encoded import add_bos_eos, narrow_ids
from tokmill.run.stream import in_order
from tokmill.run.text_encoder import TextEncoder
from tokmill.settings.load import config_from_arguments
from tokmill.settings.names import by_keyword, keyword_errors
from tokmill.settings.rows import ArrowStream, brief, is_table
from tokmill.settings.schema import ENCODE_SETTINGS
from tokmill.settings.signature import with_settings
from tokmill.sources.columns import is_text
from tokmill.tokenizer.control_tokens import contains_any, control_token_strings
from tokmill.tokenizer.objects import tokenizer_path
from tokmill.tokenizer.tokenizer import load_tokenizer
from tokmill.words import plural

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.settings.arguments import EncodeArguments
    from tokmill.tokenizer.objects import TokenizerObject

_PIECE_BYTES, _PIECE_TEXTS = 1 << 20, 1 << 14
"""Texts that are encoded by one call: as many as fit both."""


class Tokens:
    """The ids of n texts or documents, end to end.

    Attributes:
        ids: (n_tokens,) of uint16 or uint32, as the vocabulary needs.
        offsets: (n + 1,) int64: text i is `ids[offsets[i]:offsets[i + 1]]`, or `tokens[i]`.
        mask: (n_tokens,) uint8, 1 for a token that is a target; None for texts and documents.
        weight: (n_tokens,) float32, its weight in the loss; None where all weights are 0 or 1.
        path: the file that they are from; "" for texts.
        numbers: (n,) int64, the number of the record of each in its file, from 1; None for texts.
    """

    __slots__ = ("ids", "mask", "numbers", "offsets", "path", "weight")

    def __init__(
        self,
        ids: npt.NDArray[np.unsignedinteger],
        offsets: npt.NDArray[np.int64],
        mask: npt.NDArray[np.uint8] | None = None,
        weight: npt.NDArray[np.float32] | None = None,
        path: str = "",
        numbers: npt.NDArray[np.int64] | None = None,
    ) -> None:
        self.ids, self.offsets, self.mask, self.weight = ids, offsets, mask, weight
        self.path, self.numbers = path, numbers

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, number: int) -> npt.NDArray[np.unsignedinteger]:
        if not -len(self) <= number < len(self):
            raise IndexError(f"expected a number below {len(self)}, found {number}")
        number %= len(self)
        return self.ids[self.offsets[number] : self.offsets[number + 1]]

    def __iter__(self) -> Iterator[npt.NDArray[np.unsignedinteger]]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        n_ids = plural(len(self.ids), "id")
        return f"<Tokens of {plural(len(self), 'text')}: {n_ids} of {self.ids.dtype.name}>"

    def to_pylist(self) -> list[list[int]]:
        """Return a list of ids for each text."""
        return [ids.tolist() for ids in self]

    def to_arrow(self) -> pa.Table:
        """Return the column `ids`, a list for each text, and those of masks and weights if any."""
        offsets = pa.array(self.offsets)
        columns = {"ids": self.ids, "mask": self.mask, "weight": self.weight}
        arrays = {
            name: pa.LargeListArray.from_arrays(offsets, pa.array(values))
            for name, values in columns.items()
            if values is not None
        }
        return pa.table(arrays)


class Encoder:
    """Encodes texts with a tokenizer; safe to call from several threads, and to be pickled.

    A call takes a list of texts, or a column of Arrow, pandas or polars; it returns their `Tokens`.

    Args:
        tokenizer: see `tokmill.pretrain`.
        eos: end each text with eos, and begin it with bos if the settings have one.
        sample: texts of the corpus, on which engines are compared, too.
        n_bytes: about how much text there is; None: much. A fast engine takes seconds to load and
            to compare, and below 8 MiB the reference is done before.
        **settings: those of `tokmill.encode`.

    Raises:
        TokmillError: a setting or the tokenizer is wrong, or the engine is not exact.

    Example:
        >>> encoder = tokmill.Encoder("gpt2/")
        >>> encoder(["hello", "there"]).to_pylist()
    """

    @keyword_errors()
    @with_settings(by_keyword(ENCODE_SETTINGS).values())
    def __init__(
        self,
        tokenizer: str | Path | TokenizerObject,
        *,
        eos: bool = True,
        sample: Iterable[str] = (),
        n_bytes: int | None = None,
        **settings: Unpack[EncodeArguments],
    ) -> None:
        """Choose an engine, and compare it with the reference; see the class."""
        with tokenizer_path(tokenizer) as path:
            arguments = {**settings, "tokenizer": path}
            config = config_from_arguments(ENCODE_SETTINGS, arguments)
            loaded = load_tokenizer(config.tokenizer, for_chat=False)
        self.eos = eos
        self.dtype = token_dtype(config.output.dtype, loaded.max_emittable_id)
        self._reject = config.tokenizer.control_tokens_in_text == "reject"
        self._texts = TextEncoder(config, loaded, list(sample), n_bytes)

    def __call__(self, texts: Any) -> Tokens:
        """Return the ids of texts: a list, or a column of Arrow, pandas or polars.

        Raises:
            UsageError: one of them is no text.
            RecordError: a text holds a control token, and `control_tokens_in_text` is `reject`.
            ParityError: the ids of the engine are not those of the reference.
        """
        pieces = list(self.stream(texts))
        if len(pieces) == 1:
            return pieces[0]
        lengths = [np.diff(piece.offsets) for piece in pieces]
        offsets = np.concatenate([[0], *lengths]).astype(np.int64).cumsum()
        ids = [np.zeros(0, self.dtype), *(piece.ids for piece in pieces)]
        return Tokens(np.concatenate(ids), offsets)

    def stream(self, texts: Any) -> Iterator[Tokens]:
        """Yield the ids of texts, an iterable or a column, in pieces of about 1 MiB of text.

        Raises: see `__call__`.
        """
        return self._encode_pieces(_pieces(texts))

    def _encode_pieces(self, pieces: Iterable[_Piece]) -> Iterator[Tokens]:
        """Yield the ids of each piece, in order; threads are a few pieces ahead."""
        with keyword_errors():
            yield from in_order(pieces, self._encode, self._texts.n_threads)

    def _encode(self, piece: _Piece) -> Tokens:
        """Return the ids of a piece, compared with the reference as in a run."""
        tokenizer = self._texts.tokenizer
        self._refuse_control(piece)
        batch = self._texts.encode(piece.text)
        if not self.eos:
            return Tokens(narrow_ids(batch.ids, self.dtype), batch.offsets)
        bos = None if tokenizer.bos is None else tokenizer.bos.id
        return Tokens(*add_bos_eos(batch, tokenizer.eos.id, bos, self.dtype))

    def _refuse_control(self, piece: _Piece) -> None:
        if not self._reject:
            return
        found = contains_any(piece.text, control_token_strings(self._texts.tokenizer))
        for number in np.flatnonzero(found)[:1].tolist():
            raise RecordError(
                f"text {piece.first + number}: holds a control token's string and "
                "control_tokens_in_text is reject"
            )


class _Piece:
    """Texts that are encoded by one call; `first`: the number of the first one."""

    def __init__(self, text: pa.LargeStringArray, first: int) -> None:
        self.text, self.first = text, first


class _FirstTexts:
    """The first texts of an iterable, which is then read on behind them.

    `n_bytes`: of all texts; None if there is much, and nobody knows how much.
    """

    def __init__(self, texts: Any) -> None:
        self._held: list[_Piece] = []
        self._rest = _pieces(texts)
        self.n_bytes: int | None = 0
        for piece in self._rest:
            self._held.append(piece)
            offsets = byte_offsets(piece.text)
            self.n_bytes += int(offsets[-1] - offsets[0])
            if self.n_bytes >= LEAST_BYTES:
                self.n_bytes = None
                break

    def texts(self) -> Iterator[str]:
        """Yield the first texts."""
        return chain.from_iterable(piece.text.to_pylist() for piece in self._held)

    def all_pieces(self) -> Iterator[_Piece]:
        """Return an iterator of all texts, once."""
        held, self._held = self._held, []
        return chain(held, self._rest)


def encode_texts(texts: Any, tokenizer: Any, eos: bool, settings: Any) -> Iterator[Tokens]:
    """Yield the ids of texts, whose first ones choose the engine; raises what `Encoder` does."""
    first = _FirstTexts(texts)
    sample = first.texts()
    encoder = Encoder(tokenizer, eos=eos, sample=sample, n_bytes=first.n_bytes, **settings)
    yield from encoder._encode_pieces(first.all_pieces())


def _pieces(texts: Any) -> Iterator[_Piece]:
    """Yield texts in pieces of about `_PIECE_BYTES`.

    Raises:
        UsageError: one of them is no text.
    """
    first = 0
    columns = _columns_of_table(texts) if is_table(texts) else _columns_of_texts(texts)
    for column in columns:
        if column.null_count:
            number = first + int(np.argmax(column.is_null()))
            raise UsageError(f"text {number}: expected a text, found null")
        for text in split_by_bytes(column, _PIECE_BYTES):
            yield _Piece(text, first)
            first += len(text)


def _columns_of_texts(texts: Any) -> Iterator[pa.LargeStringArray]:
    """Yield texts of Python in columns of about `_PIECE_BYTES`."""
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise UsageError(f"texts: expected an iterable of texts, found {brief(texts)}")
    held: list[str] = []
    n_bytes = n_texts = 0
    for text in texts:
        if not isinstance(text, str):
            raise UsageError(f"text {n_texts}: expected a text, found {brief(text)}")
        held.append(text)
        n_bytes += len(text)
        n_texts += 1
        if n_bytes >= _PIECE_BYTES or len(held) == _PIECE_TEXTS:
            yield _column(held, n_texts)
            held, n_bytes = [], 0
    if held:
        yield _column(held, n_texts)


def _column(texts: list[str], stop: int) -> pa.LargeStringArray:
    """Return texts as a column; `stop`: the number behind the last of them."""
    try:
        return pa.array(texts, pa.large_string())
    except UnicodeEncodeError as error:
        bad = next(i for i, text in enumerate(texts) if text == error.object)
        raise UsageError(
            f"text {stop - len(texts) + bad}: expected whole characters, found half of a surrogate "
            "pair"
        ) from None


def _columns_of_table(texts: Any) -> Iterator[pa.LargeStringArray]:
    """Yield a column of Arrow, or of a library that gives it to Arrow, in its chunks."""
    if isinstance(texts, pa.Array):
        chunks = [texts]
    else:
        is_array = not isinstance(texts, ArrowStream)
        chunks = [pa.array(texts)] if is_array else pa.chunked_array(texts).chunks
    for chunk in chunks:
        kind = chunk.type.value_type if pa.types.is_dictionary(chunk.type) else chunk.type
        if not is_text(kind):
            found = "a table" if pa.types.is_struct(kind) else str(kind)
            raise UsageError(f"texts: expected a column of texts, found {found}")
        try:
            yield chunk.cast(kind).cast(pa.large_string())
        except pa.ArrowInvalid as error:
            raise UsageError(f"texts: expected texts in UTF-8: {error}") from None
