"""Reads SentencePiece `.model` files, and converts them into an equivalent tokenizer.json.

SentencePiece merges, in the text, the two neighbours whose concatenation is the piece with the
highest score, leftmost first. A list of merges is equivalent if it contains every split of a piece
into two pieces, in the order of the scores, *and* no two pieces have the same score. Runs of one
repeated character may have the same score (Llama 2's runs of spaces do): leftmost first then makes
a run grow from its left end, so splits with a longer left side come first.

Field numbers are from `sentencepiece_model.proto` in google/sentencepiece; the idea to rebuild
merges from scores is from `convert_slow_tokenizer.py` in huggingface/transformers.
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
    Content,
    bpe_text,
    replace_step,
    sequence,
    split_step,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentencepiece import SentencePieceProcessor

_BPE = 2


class PieceType(IntEnum):
    """The type of a piece."""

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
    """The fields of a `.model` that decide how text is encoded."""

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
    except (ValueError, LookupError, TypeError, AttributeError, struct.error):
        raise TokenizerError(f"{where}: not a SentencePiece model") from None


def load_processor(data: bytes, *, where: str) -> SentencePieceProcessor:
    """Return a model, loaded by SentencePiece itself.

    Raises:
        TokenizerError: SentencePiece is missing, or refuses the model.
    """
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError:
        raise TokenizerError(
            f"{where}: the package sentencepiece, which encodes this model, is missing: pip "
            "install sentencepiece, or take the tokenizer.json of the model"
        ) from None
    try:
        return SentencePieceProcessor(model_proto=data)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise TokenizerError(f"{where}: not a SentencePiece model: {reason}") from None


def sentencepiece_to_json(model: SentencePieceModel) -> str:
    """Return the text of a tokenizer.json with the same ids, or '' if none exists.

    Control and unknown pieces become special added tokens, so that their strings in a text can be
    encoded as ordinary text, as SentencePiece does.
    """
    if not _is_convertible(model):
        return ""
    pieces = model.pieces
    return bpe_text(
        {
            "vocab": {piece.content: index for index, piece in enumerate(pieces)},
            "merges": _merges(pieces),
            "unk_token": next(p.content for p in pieces if p.type is PieceType.UNKNOWN),
            "fuse_unk": True,
            "byte_fallback": model.byte_fallback,
            "ignore_merges": any(p.type is PieceType.USER_DEFINED for p in pieces),
        },
        [(id_, content, True) for id_, content in control_pieces(model)],
        {
            "normalizer": sequence("normalizer", _normalizers(model)),
            "pre_tokenizer": _user_defined_split(pieces),
            "decoder": _decoder(model),
        },
    )


def control_pieces(model: SentencePieceModel) -> list[tuple[int, str]]:
    """Return id and string of the control and unknown pieces, which no text spells."""
    reserved = (PieceType.CONTROL, PieceType.UNKNOWN)
    return [(i, piece.content) for i, piece in enumerate(model.pieces) if piece.type in reserved]


def _is_convertible(model: SentencePieceModel) -> bool:
    """Return whether a list of merges can be equivalent to the model."""
    types = {piece.type for piece in model.pieces}
    if model.model_type != _BPE or model.whitespace_as_suffix or not model.escape_whitespaces:
        return False
    if model.charsmap:  # the `Precompiled` step loses combining marks: "\u00e0\u0301" becomes "à"
        return False
    if PieceType.UNUSED in types or PieceType.UNKNOWN not in types:  # unused: split again
        return False
    contents = {piece.content for piece in model.pieces}
    if len(contents) != len(model.pieces):
        return False
    # Unlike SentencePiece, a merge list never merges a character that is not a piece itself.
    normal = [piece for piece in model.pieces if piece.type is PieceType.NORMAL]
    return _ties_are_runs(normal) and all(contents.issuperset(piece.content) for piece in normal)


def _ties_are_runs(pieces: Sequence[Piece]) -> bool:
    """Return whether pieces of equal score are all runs of one character."""
    merged = sorted((p for p in pieces if len(p.content) > 1), key=lambda p: p.score)
    groups = (list(group) for _, group in itertools.groupby(merged, key=lambda p: p.score))
    return all(len(g) == 1 or len(set().union(*(p.content for p in g))) == 1 for g in groups)


def _merges(pieces: Sequence[Piece]) -> list[tuple[str, str]]:
    """Return every split of a piece into two, by falling score, then falling length of the left."""
    scores = {p.content: p.score for p in pieces if p.type is PieceType.NORMAL}
    splits = [
        (-score, -at, content)
        for content, score in scores.items()
        for at in range(1, len(content))
        if content[:at] in scores and content[at:] in scores
    ]
    return [(content[:-at], content[-at:]) for _, at, content in sorted(splits)]


def _normalizers(model: SentencePieceModel) -> list[Content]:
    """Return the steps of SentencePiece's normalizer, in order."""
    steps: list[Content] = []
    if model.remove_extra_whitespaces:  # spaces only, no other white space
        steps.append(replace_step({"Regex": r"\A +"}, ""))
        steps.append(replace_step({"Regex": " {2,}"}, " "))
    if model.dummy_prefix:
        steps.append({"type": "Prepend", "prepend": SPACE_MARK})
    steps.append(replace_step({"String": " "}, SPACE_MARK))
    if model.remove_extra_whitespaces:  # also a literal ▁ at the end, even the dummy prefix
        steps.append(replace_step({"Regex": rf"{SPACE_MARK}+\z"}, ""))
    return steps


def _user_defined_split(pieces: Sequence[Piece]) -> Content | None:
    """Return a split that isolates user-defined pieces, the longest first; they are looked up."""
    contents = [piece.content for piece in pieces if piece.type is PieceType.USER_DEFINED]
    if not contents:
        return None
    longest_first = sorted(contents, key=lambda content: (-len(content), content))
    return split_step("|".join(map(re.escape, longest_first)))


def _decoder(model: SentencePieceModel) -> Content:
    steps = [replace_step({"String": SPACE_MARK}, " ")]
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
    """Read the sub-message `field`; if it comes twice, protobuf merges: the last values win."""
    return _message(b"".join(message.get(field, [])))


def _message(data: bytes) -> _Message:
    """Read a protobuf message: values (integers or bytes) by field number, in order."""
    fields: _Message = {}
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
                    raise ValueError("a field ends after the message")
                value, position = data[position : position + length], position + length
            case wire:
                raise ValueError(f"unknown wire type {wire}")
        fields.setdefault(key >> 3, []).append(value)
    return fields


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
