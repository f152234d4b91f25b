"""A tokenizer, found and described: what workers get, and what the manifest records."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from tokmill.errors import TokenizerError
from tokmill.tokenizer.end_of_text import FoundEos, find_eos, find_token
from tokmill.tokenizer.equivalent_json import to_equivalent
from tokmill.tokenizer.files import (
    Token,
    find_tokenizer_file,
    read_companions,
    read_file,
    what_to_name,
)
from tokmill.tokenizer.sentencepiece_model import PieceType, read_model, sentencepiece_to_json
from tokmill.tokenizer.tiktoken_file import is_rank_file, tiktoken_to_json
from tokmill.tokenizer.tokenizer_json import as_text, find_values, unknown_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tokmill.settings.schema import TokenizerSettings
    from tokmill.tokenizer.files import Companions

__all__ = ["Token", "Tokenizer", "load_tokenizer"]

_NOT_OURS = ("post_processor", "truncation", "padding")
"""What in a tokenizer.json places tokens, cuts or pads."""


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A tokenizer as plain values, ready to be pickled.

    `kind`: `json` or `sentencepiece`. `data`: the bytes of the file as found. `json`: the text of a
    tokenizer.json for the engines, without the parts that place tokens, cut or pad; '' for a
    SentencePiece model that has no equal one. `sha256`: of the file as found, and for a tiktoken
    rank file of its pattern's name too. `vocab_size`: largest id + 1. `max_emittable_id`: the
    largest id that a run can write. `rewritten_json`: an equal text that more engines take, or '';
    `rewrites`: what it says in other words. `named`: strings of tokens by what the files beside it
    call them, such as `bos_token`. `eos_note`: a line for the user if no file names eos plainly.
    `spare`: the `tokenizers` object that it was checked with and the `json` it stands for, see
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
        """Return how to make it again, without the spare; Python 3.11.2 passes by a getstate."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        return Tokenizer, tuple((values | {"spare": []}).values())

    def library(self) -> Any:
        """Give a `tokenizers` object of one's own, which neither cuts nor pads.

        The first comes from the check: to load a vocabulary of 150,000 again takes 0.5 s.
        """
        from tokenizers import Tokenizer as Library

        try:
            text, library = self.spare.pop()  # looking first would let two threads see the same
        except IndexError:
            return Library.from_str(self.json)
        if text is not self.json:  # a copy by `replace` with another json has the same list
            self.spare.append((text, library))
            return Library.from_str(self.json)
        library.no_truncation()
        library.no_padding()
        return library

    @property
    def fast_json(self) -> str:
        """Give the text of a tokenizer.json for the fast engines."""
        return self.rewritten_json or self.json


@dataclass(frozen=True, slots=True)
class _Source:
    """A tokenizer file, read: every token's id by its string, and which ids text can become."""

    kind: str
    data: bytes
    json: str
    sha256: str
    ids: dict[str, int]
    special_ids: frozenset[int]
    text_ids: frozenset[int]
    eos: Token | None = None
    rewritten_json: str = ""
    rewrites: tuple[str, ...] = ()
    spare: list[tuple[str, Any]] = field(default_factory=list)


def load_tokenizer(settings: TokenizerSettings, *, for_chat: bool = False) -> Tokenizer:
    """Find, check and describe the tokenizer that the settings name.

    `for_chat`: its eos may be what the chat template ends turns with.

    Raises:
        UsageError: nothing of that name is here.
        TokenizerError: it does not load, or its eos is missing, ambiguous or unknown.
        StorageError: a file of it cannot be read.
    """
    path = find_tokenizer_file(settings.path)
    try:
        source = _read(path, settings.pattern)
    except TokenizerError as error:
        raise TokenizerError(f"{error}{what_to_name(path)}") from None
    companions = read_companions(path.parent)
    found = _eos(settings, source, companions, for_chat=for_chat)
    eos = found.token
    bos = None
    if settings.bos_token:
        bos = find_token(settings.bos_token, source.ids, where=settings.path, option="--bos-token")
    emittable = {eos.id, *([bos.id] if bos else [])} | source.text_ids
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
        eos_note=found.note,
        spare=source.spare,
    )


def _eos(
    settings: TokenizerSettings, source: _Source, companions: Companions, *, for_chat: bool
) -> FoundEos:
    where = settings.path
    if settings.eos_token:
        token = find_token(settings.eos_token, source.ids, where=where, option="--eos-token")
        return FoundEos(token)
    ids, special = source.ids, source.special_ids
    return find_eos(ids, companions, source.eos, where=where, special=special, of_turns=for_chat)


def _read(path: Path, pattern: str) -> _Source:
    """Read a tokenizer file of any kind; the content says which."""
    data, where = read_file(path), str(path)
    if is_rank_file(data):
        text = tiktoken_to_json(data, pattern, where=where)
        sha256 = hashlib.sha256(data + b"\0" + pattern.encode()).hexdigest()
        return _read_json(data, text, sha256, {}, where=where)  # every text has tokens: its bytes
    sha256 = hashlib.sha256(data).hexdigest()
    is_model = path.suffix != ".json" or data[:1] == b"\n"  # so a SentencePiece model begins
    if is_model and data.lstrip()[:1] != b"{":
        return _read_sentencepiece(data, sha256, where=where)
    content = _parsed(data, where=where)
    text = _cleaned_text(data, content)
    content |= dict.fromkeys(_NOT_OURS)
    source = _read_json(data, text, sha256, content["model"], where=where)
    rewritten, rewrites = to_equivalent(content)
    if not rewrites:
        return source
    return replace(source, rewritten_json=as_text(rewritten), rewrites=rewrites)


def _cleaned_text(data: bytes, content: Mapping[str, Any]) -> str:
    """Give the text of a tokenizer.json without the parts that place tokens, cut or pad.

    Cut out of the file where that is safe: to write 150,000 merges anew takes 0.2 s. A key with an
    object behind it stands in no vocabulary, and inside a string its quotes would be escaped; if
    it stands there twice, the file is written anew.
    """
    text = data.decode(json.detect_encoding(data), "surrogatepass")  # as json.loads does
    for key in _NOT_OURS:
        if content.get(key) is None:
            continue
        found = list(find_values(text, key))
        if len(found) != 1:
            return as_text({**content, **dict.fromkeys(_NOT_OURS)})
        _, start, stop = found[0]
        text = f"{text[:start]}null{text[stop:]}"
    return text


def _parsed(data: bytes, *, where: str) -> dict[str, Any]:
    """Parse a tokenizer.json.

    Raises:
        TokenizerError: it is no tokenizer.json, or one that encodes at random.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{where}: not valid JSON: {error}") from None
    model = content.get("model") if isinstance(content, dict) else None
    if not isinstance(model, dict):
        raise TokenizerError(f"{where}: not a tokenizer.json: it has no object 'model'")
    if model.get("dropout"):
        raise TokenizerError(
            f"{where}: model.dropout is {model['dropout']}, which makes ids random; set it to null"
        )
    parsed: dict[str, Any] = content
    return parsed


def _read_json(
    data: bytes, text: str, sha256: str, model: dict[str, Any], *, where: str
) -> _Source:
    library = _load_library(text if is_rank_file(data) else data, where=where)
    model_ids: dict[str, int] = library.get_vocab(with_added_tokens=False)
    added: dict[int, Any] = library.get_added_tokens_decoder()
    special = frozenset(id_ for id_, token in added.items() if token.special)
    ids = model_ids | {token.content: id_ for id_, token in added.items()}
    if not ids:
        raise TokenizerError(f"{where}: its vocabulary is empty")
    unknown = unknown_id(model, model_ids)
    text_ids = {*model_ids.values(), *added} - special
    return _Source(
        kind="json",
        data=data,
        json=text,
        sha256=sha256,
        ids=ids,
        special_ids=special,
        text_ids=frozenset(text_ids if unknown is None else text_ids | {unknown}),
        spare=[(text, library)],
    )


def _load_library(content: str | bytes, *, where: str) -> Any:
    from tokenizers import Tokenizer as Library

    try:
        return (
            Library.from_str(content) if isinstance(content, str) else Library.from_buffer(content)
        )
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        reason = " ".join(str(error).split())
        reason = reason.removeprefix("Cannot instantiate Tokenizer from buffer: ")
        raise TokenizerError(f"{where}: the tokenizers library refuses it: {reason}") from None


def is_panic(error: BaseException) -> bool:
    """Return whether an error is a panic of native code: a BaseException without a public type."""
    return type(error).__name__ == "PanicException"


def _read_sentencepiece(data: bytes, sha256: str, *, where: str) -> _Source:
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
        text_ids=frozenset(i for i, p in enumerate(pieces) if p.type is not PieceType.CONTROL),
        eos=None if eos_id < 0 else Token(eos_id, pieces[eos_id].content),
    )
