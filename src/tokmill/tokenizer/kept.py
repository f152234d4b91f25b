"""The tokenizer that a dataset keeps, so that it can be decoded wherever it stands.

It is in the file `KEPT_TOKENIZER` of every dataset. The plan of a run names the file with its sum,
so that tasks on other machines work with this tokenizer and no other.
"""

from __future__ import annotations

import json
import sys
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Annotated, NamedTuple

from tokmill.dataset.checksum import canonical_json, digest_of_chunks
from tokmill.dataset.layout import KEPT_TOKENIZER
from tokmill.dataset.manifest import TokenEntry
from tokmill.dataset.typed_json import Id, Text, from_json
from tokmill.errors import StateError, TokenizerError, TokmillError, UsageError
from tokmill.place import open_place
from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer.files import AddedToken, Token
from tokmill.tokenizer.tokenizer import (
    Tokenizer,
    load_tokenizer,
    read_again,
    tokenizer_differences,
)
from tokmill.urls import store_url

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokmill.dataset.checksum import FileEntry
    from tokmill.dataset.manifest import Manifest
    from tokmill.dataset.place import Place

_MOST_BYTES = 1 << 28
"""A tokenizer's texts are some MB; more was not written by tokmill."""

_TEXT_CODEC = ("utf-8", "surrogatepass")

_LEVEL = 1
"""Of zstandard: 8 MB of qwen2.5 become 2.9 in 23 ms; level 3 with a long window needs 40."""


class KeptTokenizer(NamedTuple):
    """The values of a tokenizer, all but its two long texts; see `Tokenizer`.

    `added`: id, text and flags of each token, as in `AddedToken`.
    """

    name: Text
    kind: Annotated[str, frozenset({"json", "sentencepiece"})]
    identity: Text
    vocab_size: Id
    eos: TokenEntry
    bos: TokenEntry | None
    added: tuple[tuple[Id, Text, bool, bool, bool, bool, bool], ...]
    chat_template: Text | None
    max_emittable_id: Id
    named: tuple[tuple[Text, Text], ...]
    notes: tuple[Text, ...]
    marked: tuple[Text, ...]


_ADVICE = "name it with --tokenizer"


def packed_tokenizer(tokenizer: Tokenizer, template: str | None = None) -> bytes:
    """Return the file of a tokenizer: plain values, its JSON and its model, compressed.

    `template`: what writes the chats of a run, '' for none; None: the tokenizer's own.
    """
    names = {part.name for part in fields(tokenizer)} - {"json", "data"}
    values = {name: getattr(tokenizer, name) for name in names}
    if template is not None:
        values["chat_template"] = template or None
    for name in ("eos", "bos"):
        token = values[name]
        values[name] = None if token is None else {"id": token.id, "token": token.content}
    text = tokenizer.json.encode(*_TEXT_CODEC)
    content = b"\0".join((canonical_json(values), text, tokenizer.data))  # JSON has no zero byte
    return zstd.compress(content, _LEVEL)


def unpacked_tokenizer(packed: bytes) -> Tokenizer:
    """Return the tokenizer that `packed_tokenizer` has packed.

    Raises:
        ValueError: it has packed nothing of the kind.
    """
    try:
        content = zstd.ZstdDecompressor().decompress(packed, _MOST_BYTES)
        head, json_text, data = content.split(b"\0", 2)
        values = json.loads(head)
    except (zstd.ZstdError, RecursionError) as error:
        raise ValueError(str(error)) from None
    kept = from_json(KeptTokenizer, values)
    known = kept._asdict()
    known["eos"], known["bos"] = _token(kept.eos), None if kept.bos is None else _token(kept.bos)
    known["added"] = tuple(AddedToken(*token) for token in kept.added)
    return Tokenizer(**known, json=json_text.decode(*_TEXT_CODEC), data=data)


def _token(entry: TokenEntry) -> Token:
    return Token(entry.id, entry.token)


# Of a run, whose plan names the file


def keep_tokenizer(place: Place, entry: FileEntry, pack: Callable[[], bytes]) -> bool:
    """Make the file of a plan's tokenizer stand in its place; return whether it was not there.

    `entry`: of the plan. `pack` returns the file of this command's tokenizer, which may come from
    another copy than that with which the run began.

    Raises:
        StateError: what stands there is another file, and so is that of this command.
        StorageError: it cannot be read or written.
    """
    try:
        if digest_of_chunks(place.chunks(entry.name), entry.algorithm).entry(entry.name) == entry:
            return False
    except FileNotFoundError:
        pass
    packed = pack()
    if digest_of_chunks([packed], entry.algorithm).entry(entry.name) != entry:
        raise StateError(
            f"{place.where}/{entry.name}: missing or changed, and the run began with another copy "
            "of the tokenizer: name that one, or run with --overwrite to start again"
        )
    place.write(entry.name, packed)
    return True


def planned_tokenizer(place: Place, entry: FileEntry) -> Tokenizer:
    """Return the tokenizer of the plan in a place; `entry`: of its file, as the plan names it.

    Raises:
        StateError: it is missing or damaged.
        StorageError: it cannot be read.
    """
    where = f"{place.where}/{entry.name}"
    try:
        packed = place.read(entry.name)
        if digest_of_chunks([packed], entry.algorithm).entry(entry.name) != entry:
            raise ValueError("its bytes are not those that the plan names")
        return unpacked_tokenizer(packed)
    except FileNotFoundError:
        raise StateError(f"{where}: missing: plan the run again") from None
    except ValueError as error:
        raise StateError(f"{where}: damaged ({error}): plan the run again") from None


# Of a finished dataset


def packed_in(place: Place) -> bytes | None:
    """Return the file of the tokenizer that the dataset in a place keeps; None if it keeps none.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        return place.read(KEPT_TOKENIZER)
    except FileNotFoundError:
        return None


def kept_tokenizer(place: Place, manifest: Manifest) -> Tokenizer:
    """Return the tokenizer that a dataset keeps, with the eos and bos of its manifest.

    Raises:
        TokenizerError: it keeps none, or not the one that its manifest names.
        StorageError: it cannot be read.
    """
    where = place.where
    try:
        there = packed_in(place)
        found = None if there is None else unpacked_tokenizer(there)
    except ValueError as error:
        told = f"{where}: the tokenizer that it keeps is damaged ({error})"
        raise TokenizerError(f"{told}: {_ADVICE}") from None
    if found is None:
        raise TokenizerError(f"{where}: keeps no tokenizer: {_ADVICE}")
    entry = manifest.tokenizer
    named = replace(found, name=f"{where}: its tokenizer", eos=_token(entry.eos))
    found = read_again(named)
    if found.identity != entry.identity:
        raise TokenizerError(
            f"{where}: the tokenizer that it keeps is not that of its manifest: {_ADVICE}"
        )
    return replace(found, name=entry.name, bos=None if entry.bos is None else _token(entry.bos))


def tokenizer_of(directory: Path | str, manifest: Manifest, named: str) -> Tokenizer:
    """Return the tokenizer of a dataset: the one that it keeps, or `named` where that is not ''.

    Raises:
        UsageError: `named` is not its tokenizer.
        TokenizerError: the dataset keeps none, or it does not load.
        StorageError: it cannot be read.
    """
    place = open_place(store_url(directory) or str(directory))
    if not named:
        return kept_tokenizer(place, manifest)
    pattern = manifest.config.tokenizer.pattern
    eos = str(manifest.tokenizer.eos.id)
    loaded = load_tokenizer(TokenizerSettings(path=named, pattern=pattern, eos_token=eos))
    if loaded.identity != manifest.tokenizer.identity:
        try:
            told = tokenizer_differences(kept_tokenizer(place, manifest), loaded)
        except TokmillError:
            told = f"{manifest.tokenizer.name} has other ids"
        raise UsageError(
            f"{named}: not the tokenizer of this dataset: {told}; leave --tokenizer out to take "
            "the one that the dataset keeps"
        )
    return loaded
