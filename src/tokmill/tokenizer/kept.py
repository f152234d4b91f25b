"""The tokenizer that a dataset keeps, so that it can be decoded wherever it stands.

A run and an import keep it in their plan, a mix in a file of its own.
"""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from tokmill.dataset.checksum import canonical_json
from tokmill.dataset.layout import KEPT_TOKENIZER, PLAN
from tokmill.dataset.manifest_shape import TOKEN
from tokmill.dataset.plan_file import value_in_plan
from tokmill.dataset.shapes import FLAG, ID, TEXT, shape_problem_of
from tokmill.errors import TokenizerError, TokmillError, UsageError
from tokmill.place import open_place
from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer.files import AddedToken, Token
from tokmill.tokenizer.tokenizer import (
    Tokenizer,
    load_tokenizer,
    read_again,
    tokenizer_differences,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tokmill.dataset.place import Place

_MOST_BYTES = 1 << 28
"""A tokenizer's texts are some MB; more was not written by tokmill."""

_TEXT_CODEC = ("utf-8", "surrogatepass")

_WINDOW = 26
_COMPRESSION: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 3,
    zstd.CompressionParameter.window_log: _WINDOW,
    zstd.CompressionParameter.enable_long_distance_matching: 1,
}

_VALUES = {
    "name": TEXT,
    "kind": {"json", "sentencepiece"},
    "identity": TEXT,
    "vocab_size": ID,
    "eos": TOKEN,
    "bos": (TOKEN, None),
    "added": [[ID, TEXT, FLAG, FLAG, FLAG, FLAG, FLAG]],
    "chat_template": (TEXT, None),
    "max_emittable_id": ID,
    "named": [[TEXT, TEXT]],
    "notes": [TEXT],
    "marked": [TEXT],
}
"""Of a tokenizer, all but its two long texts."""


_ADVICE = "name it with --tokenizer"


def packed_tokenizer(tokenizer: Tokenizer) -> bytes:
    """Return a tokenizer as bytes: plain values, its JSON and its model, compressed.

    Both repeat themselves over many MB, so the window is as long: of qwen2.5, 8 MB become 3 in
    0.05 s.
    """
    names = {part.name for part in fields(tokenizer)} - {"json", "data"}
    values = {name: getattr(tokenizer, name) for name in names}
    for name in ("eos", "bos"):
        token = values[name]
        values[name] = None if token is None else {"id": token.id, "token": token.content}
    text = tokenizer.json.encode(*_TEXT_CODEC)
    content = b"\0".join((canonical_json(values), text, tokenizer.data))  # JSON has no zero byte
    return zstd.compress(content, options=_COMPRESSION)


def unpacked_tokenizer(packed: bytes) -> Tokenizer:
    """Return the tokenizer that `packed_tokenizer` has packed.

    Raises:
        ValueError: it has packed nothing of the kind.
    """
    inflate = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW})
    try:
        content = inflate.decompress(packed, _MOST_BYTES)
        head, json_text, data = content.split(b"\0", 2)
        values = json.loads(head)
    except (zstd.ZstdError, RecursionError) as error:
        raise ValueError(str(error)) from None
    if problem := shape_problem_of(values, _VALUES):
        raise ValueError(problem)
    known = {name: values[name] for name in _VALUES}
    for name in ("eos", "bos"):
        token = known[name]
        known[name] = token and Token(token["id"], token["token"])
    known["added"] = tuple(AddedToken(*token) for token in known["added"])
    known["named"] = tuple((key, content) for key, content in known["named"])
    known["notes"] = tuple(known["notes"])
    known["marked"] = tuple(known["marked"])
    return Tokenizer(**known, json=json_text.decode(*_TEXT_CODEC), data=data)


def tokenizer_in_plan(text: str) -> Tokenizer:
    """Return the tokenizer of the key `tokenizer` of a plan; raises `ValueError` as above."""
    return unpacked_tokenizer(base64.b64decode(text, validate=True))


def tokenizer_for_plan(tokenizer: Tokenizer, template: str = "") -> str:
    """Return the value of the key `tokenizer` of a plan.

    `template`: what writes the chats of the run; the tokenizer's own template may be another one.
    """
    kept = replace(tokenizer, chat_template=template or None)
    return base64.b64encode(packed_tokenizer(kept)).decode()


def packed_in(place: Place) -> bytes:
    """Return the packed tokenizer that the dataset in a place keeps; b'' if it keeps none.

    Raises:
        StorageError: it cannot be read.
        ValueError, TypeError: the plan is damaged.
    """
    try:
        return place.read(KEPT_TOKENIZER)
    except FileNotFoundError:
        pass
    try:
        text = value_in_plan(place.chunks(PLAN), "tokenizer") or ""
        return base64.b64decode(text, validate=True)
    except FileNotFoundError:
        return b""


def kept_tokenizer(place: Place, manifest: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer that a dataset keeps, with the eos and bos of its manifest.

    Raises:
        TokenizerError: it keeps none, or not the one that its manifest names.
        StorageError: it cannot be read.
    """
    where = place.where
    try:
        packed = packed_in(place)
        found = unpacked_tokenizer(packed) if packed else None
    except (ValueError, TypeError) as error:
        told = f"{where}: the tokenizer that it keeps is damaged ({error})"
        raise TokenizerError(f"{told}: {_ADVICE}") from None
    if found is None:
        raise TokenizerError(f"{where}: keeps no tokenizer: {_ADVICE}")
    entry = manifest["tokenizer"]
    eos = Token(entry["eos"]["id"], entry["eos"]["token"])
    found = read_again(replace(found, name=f"{where}: its tokenizer", eos=eos))
    if found.identity != entry["identity"]:
        raise TokenizerError(
            f"{where}: the tokenizer that it keeps is not that of its manifest: {_ADVICE}"
        )
    bos = entry["bos"]
    return replace(found, name=entry["name"], bos=bos and Token(bos["id"], bos["token"]))


def tokenizer_of(directory: Path | str, manifest: Mapping[str, Any], named: str) -> Tokenizer:
    """Return the tokenizer of a dataset: the one that it keeps, or `named` where that is not ''.

    Raises:
        UsageError: `named` is not its tokenizer.
        TokenizerError: the dataset keeps none, or it does not load.
        StorageError: it cannot be read.
    """
    place = open_place(str(directory))
    if not named:
        return kept_tokenizer(place, manifest)
    settings = manifest["config"]["tokenizer"]
    eos = str(manifest["tokenizer"]["eos"]["id"])
    loaded = load_tokenizer(
        TokenizerSettings(path=named, pattern=settings["pattern"], eos_token=eos)
    )
    if loaded.identity != manifest["tokenizer"]["identity"]:
        try:
            told = tokenizer_differences(kept_tokenizer(place, manifest), loaded)
        except TokmillError:
            told = f"{manifest['tokenizer']['name']} has other ids"
        raise UsageError(
            f"{named}: not the tokenizer of this dataset: {told}; leave --tokenizer out to take "
            "the one that the dataset keeps"
        )
    return loaded
