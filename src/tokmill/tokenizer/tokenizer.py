"""A tokenizer as plain values: found, checked, passed to workers, recorded in the manifest."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.cache import keep, kept
from tokmill.dataset.checksum import sha256_hex
from tokmill.dataset.manifest import Probe, TokenEntry, TokenizerEntry
from tokmill.errors import TokenizerError
from tokmill.tokenizer.class_note import class_note
from tokmill.tokenizer.conversion import convert
from tokmill.tokenizer.end_of_text import find_eos, find_token
from tokmill.tokenizer.equivalent_json import equivalent_text
from tokmill.tokenizer.files import (
    AddedToken,
    Token,
    advice_instead,
    code_beside,
    find_tokenizer_file,
    read_added_tokens,
    read_companions,
    read_file,
    read_object,
)
from tokmill.tokenizer.identity import (
    deciding_of_json,
    deciding_of_model,
    differences,
    identity_of,
    in_words,
)
from tokmill.tokenizer.objects import name_of
from tokmill.tokenizer.sentencepiece_model import (
    PieceType,
    control_pieces,
    load_processor,
    read_model,
    sentencepiece_to_json,
)
from tokmill.tokenizer.tiktoken_file import is_rank_file, tiktoken_to_json
from tokmill.tokenizer.tokenizer_json import (
    UNUSED_PARTS,
    decoded,
    find_values,
    keep_outline,
    keep_spare,
    parsed,
    refusal,
    spare_libraries,
    unknown_id,
    vocabulary,
    with_values,
)
from tokmill.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tokmill.settings.schema import TokenizerSettings
    from tokmill.tokenizer.identity import Deciding

    _Read = tuple[dict[str, Any], Mapping[str, int], Mapping[str, Token]]
    """Of a file: the fields of a `Tokenizer` that it decides, with `max_emittable_id` the largest
    id that text can produce; the ids of all tokens; and those that it names itself by key:
    `eos_token` of a SentencePiece model and more, and the `first` that a tokenizer.json adds."""

__all__ = [
    "PROBE_TEXT",
    "AddedToken",
    "Token",
    "Tokenizer",
    "load_tokenizer",
    "tokenizer_entry",
]

_FIRST = "first"

PROBE_TEXT = "Hello, 世界! 123\n\tx = {}"
"""Text whose ids are in the manifest: they show another tokenizer of the same name."""


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A tokenizer as plain values, which can be pickled.

    `kind`: `json` or `sentencepiece`. `data`: the bytes of a SentencePiece model, empty for others.
    `json`: the text of a tokenizer.json for the engines, without the parts that add tokens,
    truncate or pad; '' for a SentencePiece model without an equivalent one. `identity`: a sha256
    over what decides ids, see `tokenizer.identity`; a variant has that of its file. `vocab_size`:
    largest id + 1. `added`: all added tokens, by id; those of a SentencePiece model are its control
    pieces and the unknown one, all special. `marked`: those of a variant that are special, though
    the file does not mark them.
    `max_emittable_id`: the largest id that a run can write. `named`: strings of tokens by key in
    the files beside it or the model, such as `bos_token`. `notes`: lines for the user.
    """

    name: str
    kind: str
    data: bytes
    json: str
    identity: str
    vocab_size: int
    eos: Token
    bos: Token | None
    added: tuple[AddedToken, ...]
    chat_template: str | None
    max_emittable_id: int
    named: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()

    def library(self) -> Any:
        """Return a new `tokenizers` object, which neither truncates nor pads."""
        from tokenizers import Tokenizer as Library

        return spare_libraries.pop(self.json, None) or Library.from_str(self.json)

    @property
    def special_ids(self) -> tuple[int, ...]:
        """Return the ids of the special added tokens."""
        return tuple(token.id for token in self.added if token.special)

    @property
    def fast_json(self) -> str:
        """Return an equivalent tokenizer.json that more of the fast engines load."""
        return equivalent_text(self.json)[0]

    @property
    def rewrites(self) -> tuple[str, ...]:
        """Return the names of the changes in it."""
        return equivalent_text(self.json)[1]


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
        values, ids, own = _read(path, settings.pattern)
    except TokenizerError as error:
        raise TokenizerError(f"{error}{advice_instead(path)}") from None
    where, companions = (
        name_of(settings.path),
        read_companions(path if path.is_dir() else path.parent),
    )
    special = [token.id for token in values["added"] if token.special]
    if settings.eos_token:
        eos, note = find_token(settings.eos_token, ids, where=where, option="--eos-token"), ""
    else:
        eos, note = find_eos(
            ids, companions, own.get("eos_token"), where=where, special=special, of_turns=for_chat
        )
    bos = None
    if settings.bos_token:
        bos = find_token(settings.bos_token, ids, where=where, option="--bos-token")
    differs = ""
    if path.suffix == ".json" and values["kind"] == "json":
        config = read_object(path.parent / "tokenizer_config.json")
        differs = class_note(values["json"], spare_libraries[values["json"]], config, where)
    emittable = {eos.id, *([bos.id] if bos else []), values["max_emittable_id"]}
    if settings.control_tokens_in_text == "parse":
        emittable.update(special)
    return Tokenizer(
        **values | {"max_emittable_id": max(emittable)},
        name=where,
        eos=eos,
        bos=bos,
        chat_template=companions.chat_template,
        named=tuple(sorted((_named_by_model(own) | dict(companions.named)).items())),
        notes=tuple(
            filter(None, (note, differs, "" if bos or for_chat else _bos_note(own, where)))
        ),
    )


def _named_by_model(own: Mapping[str, Token]) -> dict[str, str]:
    """Return the strings of the tokens that a SentencePiece model names."""
    return {key: token.content for key, token in own.items() if key != _FIRST}


def _bos_note(own: Mapping[str, Token], where: str) -> str:
    """Return a note if the tokenizer puts a token before each text, and the run does not, or ''."""
    first = own.get(_FIRST)
    if first is None:
        return ""
    option = shlex.quote(f"--bos-token={first.content}")
    return (
        f"{where}: its post_processor puts {first.content} before a text, and this run does not; "
        f"if the model expects it: {option}"
    )


def tokenizer_entry(tokenizer: Tokenizer, probe_ids: Sequence[int]) -> TokenizerEntry:
    """Return the manifest's entry; `probe_ids`: ids of `PROBE_TEXT` by the reference."""
    eos, bos = tokenizer.eos, tokenizer.bos
    return TokenizerEntry(
        tokenizer.name,
        tokenizer.identity,
        tokenizer.vocab_size,
        TokenEntry(eos.id, eos.content),
        None if bos is None else TokenEntry(bos.id, bos.content),
        Probe(PROBE_TEXT, tuple(probe_ids)),
    )


def read_again(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer that came as plain values, with all that its own file decides read anew.

    A stranger may have written the values, and a run of chats has marked tokens as special.

    Raises:
        TokenizerError: its file is none.
    """
    where, text = tokenizer.name, file_text(tokenizer)
    if tokenizer.data:
        values, ids, _ = _read_sentencepiece(tokenizer.data, where=where)
    else:
        values, ids, _ = _read_json(text, where=where)
    if ids.get(tokenizer.eos.content) != tokenizer.eos.id:
        raise TokenizerError(f"{where}: it has no token {tokenizer.eos.content!r}, its eos")
    return replace(tokenizer, **values, bos=None, marked=())


def file_text(tokenizer: Tokenizer) -> str:
    """Return the tokenizer.json of a tokenizer without the marks of a run of chats."""
    if not tokenizer.marked:
        return tokenizer.json
    marked = set(tokenizer.marked)
    added = (t._replace(special=t.special and t.content not in marked) for t in tokenizer.added)
    return with_values(tokenizer.json, {"added_tokens": [token._asdict() for token in added]})


def tokenizer_differences(there: Tokenizer, here: Tokenizer) -> str:
    """Return in one line what decides ids and differs between two tokenizers, or ''."""
    if there.identity == here.identity:
        return ""
    return in_words(differences(_deciding(there), _deciding(here)))


def _deciding(tokenizer: Tokenizer) -> Deciding:
    """Return what decides the ids of a tokenizer."""
    where = tokenizer.name
    if tokenizer.data:
        return deciding_of_model(read_model(tokenizer.data, where=where))
    text = file_text(tokenizer)
    library, added = _loaded(text, where=where)
    return deciding_of_json(parsed(text, where=where), library, added)


def _read(path: Path, pattern: str) -> _Read:
    """Read a tokenizer file of any kind, recognized by its content."""
    where = str(path)
    if path.is_dir():
        return _read_json(convert(path, where=where), where=where)
    data = read_file(path)
    if is_rank_file(data):
        folder = path.parent
        named, code = read_added_tokens(folder), code_beside(folder)
        text = tiktoken_to_json(data, pattern, where=where, named=named, code=code)
        return _read_json(text, where=where)
    # The first byte of a SentencePiece model is a line feed.
    if (path.suffix != ".json" or data[:1] == b"\n") and data.lstrip()[:1] != b"{":
        return _read_sentencepiece(data, where=where)
    return _read_json(decoded(data, where=where), where=where)


def _loaded(text: str, *, where: str) -> tuple[Any, tuple[AddedToken, ...]]:
    """Return the library with a tokenizer.json, and its added tokens."""
    from tokenizers import Tokenizer as Library

    try:
        library = Library.from_str(text)
    except BaseException as error:
        reason = refusal(error)
        raise TokenizerError(f"{where}: the tokenizers library refuses it: {reason}") from None
    # Not those of the file: the library ignores ids that leave a gap after the vocabulary's.
    decoder: dict[int, Any] = library.get_added_tokens_decoder()
    added = tuple(
        AddedToken(id_, *(getattr(token, name) for name in AddedToken._fields[1:]))
        for id_, token in sorted(decoder.items())
    )
    return library, added


_KEPT_FROM = 1 << 20
"""Characters of a tokenizer.json from which on its identity is kept: below, it costs less."""


class _Known(NamedTuple):
    """What an earlier run has derived of a tokenizer.json.

    `identity`: see `tokenizer.identity`. `start`, `stop`: where the list of its merges stands,
    which nothing else needs.
    """

    identity: str
    start: int
    stop: int


def _known(key: str, text: str) -> _Known | None:
    """Return what an earlier run has kept of a text under its key, None if nothing."""
    values = (kept(key) or {}) if key else {}
    identity, start, stop = (values.get(name) for name in _Known._fields)
    if not (isinstance(identity, str) and isinstance(start, int) and isinstance(stop, int)):
        return None
    is_list = text[start : start + 1] == "[" and text[stop - 1 : stop] == "]"
    return _Known(identity, start, stop) if is_list else None


def _key(text: str) -> str:
    """Return the key of what is kept of a tokenizer.json, '' if it is small."""
    if len(text) < _KEPT_FROM:
        return ""
    import tokenizers

    sum_of_text = sha256_hex(text.encode("utf-8", "surrogatepass"))
    return f"identity of {sum_of_text}, tokmill {__version__}, tokenizers {tokenizers.__version__}"


def _read_json(text: str, *, where: str) -> _Read:
    """Read the text of a tokenizer.json, and load the library with it.

    Of a text that was read before, neither the merges are parsed nor the identity is computed
    again: with 150,000 ids that takes 0.15 s.
    """
    key = _key(text)
    known = _known(key, text)
    if known is None:
        content = parsed(text, where=where)
    else:
        content = parsed(f"{text[: known.start]}[]{text[known.stop :]}", where=where)
    unused = dict.fromkeys(name for name in UNUSED_PARTS if content.get(name) is not None)
    cleaned = with_values(text, unused)
    library, added = _loaded(cleaned, where=where)
    if known is None:
        identity = identity_of(deciding_of_json(content, library, added))
        places = [places for _, *places in find_values(text, "merges")] if key else []
        if len(places) == 1:
            keep(key, _Known(identity, *places[0])._asdict())
    else:
        identity = known.identity
    keep_outline(cleaned, content | unused)
    # Of the file: to ask the library for its own copy of 150,000 tokens takes 0.1 s.
    vocab = vocabulary(content["model"])
    ids = {**vocab, **{token.content: token.id for token in added}}
    if not ids:
        raise TokenizerError(f"{where}: its vocabulary is empty")
    special = {token.id for token in added if token.special}
    text_ids = {*vocab.values(), *ids.values()} - special
    unknown = unknown_id(content["model"], vocab)
    keep_spare(cleaned, library)
    values = {
        "kind": "json",
        "data": b"",
        "json": cleaned,
        "identity": identity,
        "vocab_size": max(ids.values()) + 1,
        "added": added,
        "max_emittable_id": max(text_ids if unknown is None else text_ids | {unknown}, default=0),
    }
    first = _first_added(content.get("post_processor"))
    return values, ids, {_FIRST: Token(ids[first], first)} if first in ids else {}


def _first_added(part: Any) -> str:
    """Return the token that a post-processor puts before a text, or ''; nothing checks its form."""
    try:
        if part["type"] == "Sequence":
            return next(filter(None, map(_first_added, part["processors"])), "")
        if part["type"] in ("BertProcessing", "RobertaProcessing"):
            return str(part["cls"][0])
        return str(part["single"][0]["SpecialToken"]["id"])
    except (LookupError, TypeError, RecursionError):
        return ""


def _read_sentencepiece(data: bytes, *, where: str) -> _Read:
    """Read a SentencePiece model, and convert it where a tokenizer.json can be equivalent."""
    model = read_model(data, where=where)
    library = load_processor(data, where=where)
    pieces = model.pieces
    of_text = (i for i, piece in enumerate(pieces) if piece.type is not PieceType.CONTROL)
    values = {
        "kind": "sentencepiece",
        "data": data,
        "json": sentencepiece_to_json(model),
        "identity": identity_of(deciding_of_model(model)),
        "vocab_size": len(pieces),
        "added": tuple(AddedToken(*piece, special=True) for piece in control_pieces(model)),
        "max_emittable_id": max(of_text, default=0),
    }
    ids = {piece.content: id_ for id_, piece in enumerate(pieces)}
    by_key = {"bos_token": library.bos_id(), "eos_token": library.eos_id()}
    by_key |= {"unk_token": library.unk_id(), "pad_token": library.pad_id()}
    named = {key: Token(id_, pieces[id_].content) for key, id_ in by_key.items() if id_ >= 0}
    return values, ids, named
