"""SentencePiece `.model` files: read, and turned into an equal tokenizer.json where there is one.

SentencePiece merges, over the whole text, the neighbours whose concatenation is the piece with the
highest score, leftmost first. A list of merges says the same when it holds every cut of a piece
into two pieces, in the order of the scores, *if* no two pieces share a score. Runs of one repeated
character may share one (Llama 2's runs of spaces do): leftmost first then means that the run
grows from its left end, which is what cuts with a longer left side first say.

The field numbers are those of `sentencepiece_model.proto` in google/sentencepiece; the idea to
rebuild merges from scores is `convert_slow_tokenizer.py`'s in huggingface/transformers.
"""

from __future__ import annotations

import itertools
import re
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from tokmill.errors import TokenizerError
from tokmill.tokenizer.tokenizer_json import (
    SPACE_MARK,
    bpe_text,
    replace_step,
    sequence,
    split_step,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BPE = 2


class PieceType(IntEnum):
    """What a piece is for."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Piece:
    """One entry of the vocabulary; its id is its position."""

    content: str
    score: float
    type: PieceType


@dataclass(frozen=True, slots=True)
class SentencePieceModel:
    """What a `.model` says about encoding."""

    pieces: tuple[Piece, ...]
    model_type: int
    byte_fallback: bool
    whitespace_as_suffix: bool
    charsmap: bytes
    dummy_prefix: bool
    remove_extra_whitespaces: bool
    escape_whitespaces: bool


def read_model(data: bytes, *, where: str) -> SentencePieceModel:
    """Read a serialized `ModelProto`; `where` names the file in messages.

    Raises:
        TokenizerError: the bytes are no SentencePiece model.
    """
    try:
        message = _message(data)
        if not message.get(1):
            raise ValueError("it has no pieces")
        trainer, normalizer = (_last(message, field) for field in (2, 3))
        return SentencePieceModel(
            pieces=tuple(_piece(value) for value in message.get(1, [])),
            model_type=trainer.get(3, [1])[-1],
            byte_fallback=bool(trainer.get(35, [0])[-1]),
            whitespace_as_suffix=bool(trainer.get(24, [0])[-1]),
            charsmap=normalizer.get(2, [b""])[-1],
            dummy_prefix=bool(normalizer.get(3, [1])[-1]),
            remove_extra_whitespaces=bool(normalizer.get(4, [1])[-1]),
            escape_whitespaces=bool(normalizer.get(5, [1])[-1]),
        )
    except (ValueError, IndexError, TypeError, struct.error):
        raise TokenizerError(f"{where}: not a SentencePiece model") from None


def sentencepiece_to_json(model: SentencePieceModel) -> str:
    """Turn a model into the text of a tokenizer.json that gives the same ids, or '' if none does.

    Control and unknown pieces become special added tokens, so that their strings in a text can be
    taken as text, as SentencePiece takes them.
    """
    if not _is_convertible(model):
        return ""
    pieces = model.pieces
    return bpe_text(
        {piece.content: index for index, piece in enumerate(pieces)},
        _merges(pieces),
        control_pieces(model),
        unknown=next(p.content for p in pieces if p.type is PieceType.UNKNOWN),
        byte_fallback=model.byte_fallback,
        ignore_merges=any(p.type is PieceType.USER_DEFINED for p in pieces),
        normalizer=sequence("normalizer", _normalizers(model)),
        pre_tokenizer=_user_defined_split(pieces),
        decoder=_decoder(model),
    )


def control_pieces(model: SentencePieceModel) -> list[tuple[int, str]]:
    """Give id and content of the pieces that text never becomes by its own letters."""
    reserved = (PieceType.CONTROL, PieceType.UNKNOWN)
    return [(i, piece.content) for i, piece in enumerate(model.pieces) if piece.type in reserved]


def _is_convertible(model: SentencePieceModel) -> bool:
    """Say whether a list of merges can say what the model does."""
    types = {piece.type for piece in model.pieces}
    if model.model_type != _BPE or model.whitespace_as_suffix or not model.escape_whitespaces:
        return False
    if model.charsmap:  # the `Precompiled` step loses combining marks: "\u00e0\u0301" becomes "à"
        return False
    if PieceType.UNUSED in types or PieceType.UNKNOWN not in types:  # unused ones are taken apart
        return False
    contents = {piece.content for piece in model.pieces}
    if len(contents) != len(model.pieces):
        return False
    # A merge list never merges a character that is no piece itself; SentencePiece does.
    normal = [piece for piece in model.pieces if piece.type is PieceType.NORMAL]
    return _ties_are_runs(normal) and all(contents.issuperset(piece.content) for piece in normal)


def _ties_are_runs(pieces: Sequence[Piece]) -> bool:
    """Say whether pieces of equal score are runs of one and the same character."""
    merged = sorted((p for p in pieces if len(p.content) > 1), key=lambda p: p.score)
    groups = (list(group) for _, group in itertools.groupby(merged, key=lambda p: p.score))
    return all(len(g) == 1 or len(set().union(*(p.content for p in g))) == 1 for g in groups)


def _merges(pieces: Sequence[Piece]) -> list[tuple[str, str]]:
    """Give every cut of a piece into two, by falling score, then by falling length of the left."""
    scores = {p.content: p.score for p in pieces if p.type is PieceType.NORMAL}
    cuts = [
        (-score, -cut, content)
        for content, score in scores.items()
        for cut in range(1, len(content))
        if content[:cut] in scores and content[cut:] in scores
    ]
    return [(content[:-cut], content[-cut:]) for _, cut, content in sorted(cuts)]


def _normalizers(model: SentencePieceModel) -> list[dict[str, Any]]:
    """Give the steps of SentencePiece's normalizer, in its order."""
    steps: list[dict[str, Any]] = []
    if model.remove_extra_whitespaces:  # spaces only: other white space is text
        steps.append(replace_step({"Regex": r"\A +"}, ""))
        steps.append(replace_step({"Regex": " {2,}"}, " "))
    if model.dummy_prefix:
        steps.append({"type": "Prepend", "prepend": SPACE_MARK})
    steps.append(replace_step({"String": " "}, SPACE_MARK))
    if model.remove_extra_whitespaces:  # at the end a literal ▁ goes too, even the dummy prefix
        steps.append(replace_step({"Regex": rf"{SPACE_MARK}+\z"}, ""))
    return steps


def _user_defined_split(pieces: Sequence[Piece]) -> dict[str, Any] | None:
    """Set user-defined pieces apart before merging, the longest first, to be looked up whole."""
    contents = [piece.content for piece in pieces if piece.type is PieceType.USER_DEFINED]
    if not contents:
        return None
    longest_first = sorted(contents, key=lambda content: (-len(content), content))
    return split_step("|".join(map(re.escape, longest_first)))


def _decoder(model: SentencePieceModel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [replace_step({"String": SPACE_MARK}, " ")]
    steps += [{"type": "ByteFallback"}, {"type": "Fuse"}]
    if model.dummy_prefix:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return sequence("decoder", steps)


_Message = dict[int, list[Any]]


def _piece(data: bytes) -> Piece:
    fields = _message(data)
    (score,) = struct.unpack("<f", fields.get(2, [bytes(4)])[-1])
    return Piece(fields[1][-1].decode("utf-8"), score, PieceType(fields.get(3, [1])[-1]))


def _last(message: _Message, field: int) -> _Message:
    """Read the sub-message `field`; given twice, protobuf merges, and the last values win."""
    return _message(b"".join(message.get(field, [])))


def _message(data: bytes) -> _Message:
    """Read a protobuf message: field number to its values, integers or bytes, in order."""
    fields: _Message = {}
    for number, value in _fields(data):
        fields.setdefault(number, []).append(value)
    return fields


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        value: int | bytes
        match key & 7:
            case 0:
                value, position = _varint(data, position)
            case 1 | 2 | 5 as wire:
                length = {1: 8, 5: 4}.get(wire)
                if length is None:
                    length, position = _varint(data, position)
                if position + length > len(data):
                    raise ValueError("a field ends behind the message")
                value, position = data[position : position + length], position + length
            case wire:
                raise ValueError(f"unknown wire type {wire}")
        yield key >> 3, value


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
