"""A tokenizer as plain values: found, checked, passed to workers, recorded in the manifest."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from tokmill.errors import TokenizerError
from tokmill.tokenizer.end_of_text import FoundEos, find_eos, find_token
from tokmill.tokenizer.equivalent_json import to_equivalent
from tokmill.tokenizer.files import (
    Token,
    advice_instead,
    find_tokenizer_file,
    read_companions,
    read_file,
)
from tokmill.tokenizer.sentencepiece_model import PieceType, read_model, sentencepiece_to_json
from tokmill.tokenizer.tiktoken_file import is_rank_file, tiktoken_to_json
from tokmill.tokenizer.tokenizer_json import (
    UNUSED_PARTS,
    as_text,
    cleaned_text,
    decoded,
    keep_outline,
    outline,
    parsed,
    refusal,
    unknown_id,
    vocabulary,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokmill.settings.schema import TokenizerSettings

__all__ = ["PROBE_TEXT", "Token", "Tokenizer", "load_tokenizer", "tokenizer_entry"]

PROBE_TEXT = "Hello, 世界! 123\n\tx = {}"
"""Text whose ids are in the manifest: they show another tokenizer of the same name."""


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A tokenizer as plain values, which can be pickled.

    `kind`: `json` or `sentencepiece`. `data`: the bytes of the original file. `json`: the text of a
    tokenizer.json for the engines, without the parts that add tokens, truncate or pad; '' for a
    SentencePiece model without an equivalent one. `sha256`: of the original file, and for a
    tiktoken rank file also of its pattern's name. `vocab_size`: largest id + 1.
    `max_emittable_id`: the largest id that a run can write. `rewritten_json`: an equivalent text
    that more engines load, or ''; `rewrites`: the names of the changes in it. `named`: strings of
    tokens by key in the files beside it, such as `bos_token`. `eos_note`: a line for the user if no
    file names eos. `spare`: an unused `tokenizers` object and the `json` that it was made from, see
    `library`.
    """

    name: str
    kind: str
    data: bytes
    json: str
    sha256: str
    vocab_size: int
    eos: Token
    bos: Token | None
    special_ids: tuple[int, ...]
    chat_template: str | None
    max_emittable_id: int
    rewritten_json: str = ""
    rewrites: tuple[str, ...] = ()
    named: tuple[tuple[str, str], ...] = ()
    eos_note: str = ""
    spare: list[tuple[str, Any]] = field(default_factory=list, compare=False, repr=False)

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[Any, ...]]:
        """Return how to make it again, without the spare; 3.11.2 ignores `__getstate__`."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        return Tokenizer, tuple((values | {"spare": []}).values())

    def library(self) -> Any:
        """Return a new `tokenizers` object, which neither truncates nor pads.

        The first call returns the spare: to load a vocabulary of 150,000 again takes 0.5 s.
        """
        from tokenizers import Tokenizer as Library

        try:
            text, library = self.spare.pop()  # atomic, unlike a check first
        except IndexError:
            return Library.from_str(self.json)
        if text is not self.json:  # a copy with another json shares the list
            self.spare.append((text, library))
            return Library.from_str(self.json)
        library.no_truncation()
        library.no_padding()
        return library

    @property
    def fast_json(self) -> str:
        """Return the text of a tokenizer.json for the fast engines."""
        return self.rewritten_json or self.json


@dataclass(frozen=True, slots=True)
class _Source:
    """The contents of a tokenizer file.

    `ids`: of all tokens. `largest_of_text`: the largest id that text can produce.
    """

    kind: str
    data: bytes
    json: str
    sha256: str
    ids: dict[str, int]
    special_ids: frozenset[int]
    largest_of_text: int
    eos: Token | None = None
    rewritten_json: str = ""
    rewrites: tuple[str, ...] = ()
    spare: list[tuple[str, Any]] = field(default_factory=list)


def load_tokenizer(settings: TokenizerSettings, *, for_chat: bool = False) -> Tokenizer:
    """Load and check the tokenizer that the settings name.

    `for_chat`: its eos may also end the turns of the chat template.

    Raises:
        UsageError: there is no tokenizer of that name.
        TokenizerError: it does not load, or its eos is missing, ambiguous or unknown.
        StorageError: one of its files cannot be read.
    """
    path = find_tokenizer_file(settings.path)
    try:
        source = _read(path, settings.pattern)
    except TokenizerError as error:
        raise TokenizerError(f"{error}{advice_instead(path)}") from None
    companions = read_companions(path.parent)
    if settings.eos_token:
        named = find_token(
            settings.eos_token, source.ids, where=settings.path, option="--eos-token"
        )
        end = FoundEos(named)
    else:
        end = find_eos(
            source.ids,
            companions,
            source.eos,
            where=settings.path,
            special=source.special_ids,
            of_turns=for_chat,
        )
    eos = end.token
    bos = None
    if settings.bos_token:
        bos = find_token(settings.bos_token, source.ids, where=settings.path, option="--bos-token")
    emittable = {eos.id, *([bos.id] if bos else []), source.largest_of_text}
    if settings.control_tokens_in_text == "parse":
        emittable |= source.special_ids
    return Tokenizer(
        name=settings.path,
        kind=source.kind,
        data=source.data,
        json=source.json,
        sha256=source.sha256,
        vocab_size=max(source.ids.values()) + 1,
        eos=eos,
        bos=bos,
        special_ids=tuple(sorted(source.special_ids)),
        chat_template=companions.chat_template,
        max_emittable_id=max(emittable),
        rewritten_json=source.rewritten_json,
        rewrites=source.rewrites,
        named=tuple(sorted(companions.named.items())),
        eos_note=end.note,
        spare=source.spare,
    )


def tokenizer_entry(tokenizer: Tokenizer, probe_ids: Sequence[int]) -> dict[str, Any]:
    """Return the manifest's entry; `probe_ids`: ids of `PROBE_TEXT` by the reference."""
    eos, bos = tokenizer.eos, tokenizer.bos
    return {
        "name": tokenizer.name,
        "sha256": tokenizer.sha256,
        "vocab_size": tokenizer.vocab_size,
        "eos": {"id": eos.id, "token": eos.content},
        "bos": None if bos is None else {"id": bos.id, "token": bos.content},
        "probe": {"text": PROBE_TEXT, "ids": list(probe_ids)},
    }


def _read(path: Path, pattern: str) -> _Source:
    """Read a tokenizer file of any kind, recognized by its content."""
    data, where = read_file(path), str(path)
    if is_rank_file(data):
        text = tiktoken_to_json(data, pattern, where=where)
        sha256 = hashlib.sha256(data + b"\0" + pattern.encode()).hexdigest()
        # No unknown token: all bytes are tokens.
        return _read_json(data, text, sha256, None, where=where)
    sha256 = hashlib.sha256(data).hexdigest()
    # The first byte of a SentencePiece model is a line feed.
    is_model = path.suffix != ".json" or data[:1] == b"\n"
    if is_model and data.lstrip()[:1] != b"{":
        return _read_sentencepiece(data, sha256, where=where)
    text = decoded(data, where=where)
    content = outline(text, where=where)
    source = _read_json(data, cleaned_text(text, content), sha256, content["model"], where=where)
    keep_outline(source.json, content | dict.fromkeys(UNUSED_PARTS))
    if not to_equivalent(content)[1]:
        return source
    rewritten, rewrites = to_equivalent(parsed(text, where=where) | dict.fromkeys(UNUSED_PARTS))
    return replace(source, rewritten_json=as_text(rewritten), rewrites=rewrites)


def _read_json(
    data: bytes, text: str, sha256: str, model: dict[str, Any] | None, *, where: str
) -> _Source:
    """Load the library; `model`: that of a file tokenizer.json, without its merges."""
    from tokenizers import Tokenizer as Library

    try:
        library = Library.from_str(text) if model is None else Library.from_buffer(data)
    except BaseException as error:
        reason = refusal(error)
        raise TokenizerError(f"{where}: the tokenizers library refuses it: {reason}") from None
    if model is None:
        model = {"vocab": library.get_vocab(with_added_tokens=False)}
    decoder: dict[int, Any] = library.get_added_tokens_decoder()
    # Of the file: to ask the library for its own copy of 150,000 tokens takes 0.1 s.
    vocab = vocabulary(model)
    special = frozenset(id_ for id_, token in decoder.items() if token.special)
    ids = {**vocab, **{token.content: id_ for id_, token in decoder.items()}}
    if not ids:
        raise TokenizerError(f"{where}: its vocabulary is empty")
    unknown = unknown_id(model, vocab)
    text_ids = {*vocab.values(), *decoder} - special
    return _Source(
        kind="json",
        data=data,
        json=text,
        sha256=sha256,
        ids=ids,
        special_ids=special,
        largest_of_text=max(text_ids if unknown is None else text_ids | {unknown}, default=0),
        spare=[(text, library)],
    )


def _read_sentencepiece(data: bytes, sha256: str, *, where: str) -> _Source:
    """Read a SentencePiece model, and convert it where a tokenizer.json can be equivalent."""
    from sentencepiece import SentencePieceProcessor

    model = read_model(data, where=where)
    try:
        library = SentencePieceProcessor(model_proto=data)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise TokenizerError(f"{where}: SentencePiece refuses it: {reason}") from None
    pieces, eos_id = model.pieces, library.eos_id()
    control = (PieceType.CONTROL, PieceType.UNKNOWN)
    return _Source(
        kind="sentencepiece",
        data=data,
        json=sentencepiece_to_json(model),
        sha256=sha256,
        ids={piece.content: index for index, piece in enumerate(pieces)},
        special_ids=frozenset(i for i, piece in enumerate(pieces) if piece.type in control),
        largest_of_text=max(
            (i for i, piece in enumerate(pieces) if piece.type is not PieceType.CONTROL), default=0
        ),
        eos=None if eos_id < 0 else Token(eos_id, pieces[eos_id].content),
    )
