"""Which characters an engine treats otherwise than the reference, for a kind of tokenizer.

Only the steps of a tokenizer that normalize and split text decide that, not its vocabulary. So a
byte-level tokenizer is compared with a vocabulary that shows every place where a pretoken ends: in
it, two characters side by side share a token exactly if no split separates them. One result
holds for all tokenizers with the same steps, its `structure`.

`differences.json` has the results for the steps of common tokenizers, on all code points, per
version of the engine; `bench.character_scan` makes it. For other steps the common characters are
compared once, and the result is kept in a file of the user's cache directory. Documents with any
other character go to the reference.
"""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from tokmill.cache import keep, kept
from tokmill.dataset.checksum import canonical_json
from tokmill.engines.added_tokens import AddedTokens, divide_added_tokens, for_engine
from tokmill.engines.choice import CharacterComparison
from tokmill.engines.engine import REFERENCE, engine_version
from tokmill.engines.routing import COMMON, EVERY
from tokmill.engines.texts import sequences
from tokmill.tokenizer.tokenizer_json import (
    Content,
    as_text,
    byte_characters,
    is_byte_level,
    outline,
    step_parts,
    steps,
)
from tokmill.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokmill.tokenizer.tokenizer import Tokenizer


_VERSION = 2
"""Of the method; what another one kept is not read."""

_OPTIONS = ("byte_fallback", "fuse_unk", "continuing_subword_prefix", "end_of_word_suffix")
"""Of a model that is not byte-level: what decides the ids of a character without a token."""


def known_comparison(tokenizer: Tokenizer, engine: str) -> CharacterComparison | None:
    """Return the result for an engine, from the shipped table or the cache; None if in neither."""
    versions = _versions(tokenizer, engine)
    row = _table().get(versions[0], {}).get(structure(tokenizer), {})
    known = row.get("engines", {}).get(versions[1])
    if known is not None:
        return CharacterComparison.from_json(known | row["compared"])
    cached = kept(_cache_key(tokenizer, versions))
    try:
        return None if cached is None else CharacterComparison.from_json(cached)
    except (ValueError, KeyError, TypeError):
        return None


def divided_added_tokens(tokenizer: Tokenizer, *, parse: bool) -> AddedTokens:
    """Return what `divide_added_tokens` does, kept in the cache: with NFC it takes 0.1 s.

    Raises:
        TokenizerError: see there; this is not kept.
    """
    parts = step_parts(tokenizer.json) if tokenizer.json else {}
    values = [__version__, parse, parts, [list(token) for token in tokenizer.added]]
    versions = [engine_version(REFERENCE, tokenizer), unicodedata.unidata_version]
    key = _hash([_VERSION, "added tokens", *versions, *values])
    try:
        if cached := kept(key):
            return AddedTokens.from_json(cached)
    except (ValueError, KeyError, TypeError):
        pass
    divided = divide_added_tokens(tokenizer, parse=parse)
    if divided != AddedTokens():
        keep(key, divided.as_json())
    return divided


def compare_engines(
    tokenizer: Tokenizer,
    engines: Sequence[str],
    n_threads: int,
    note: Callable[[str], None] = lambda _: None,
    *,
    every: bool = False,
) -> dict[str, CharacterComparison]:
    """Compare engines with the reference on characters and sequences, side by side.

    Each engine runs in a child process: one that crashes is refused. The results are kept, unless
    an engine did not answer in time. `note` gets a line on what is compared. `every`: compare all
    code points, and keep nothing.
    """
    from tokmill.engines.engine_child import TIMED_OUT, compare_in_children  # few runs compare

    n_characters = len(EVERY if every else COMMON)
    note(
        f"comparing {' and '.join(engines)} with the reference on {n_characters:,} characters and "
        f"{len(sequences()):,} sequences of them, once for tokenizers of this kind"
    )
    results = compare_in_children(engines, showing(tokenizer), n_threads, every=every)
    for name, result in results.items():
        if not every and not result.refused.startswith(TIMED_OUT):
            keep(_cache_key(tokenizer, _versions(tokenizer, name)), result.as_json())
    return results


def model_type(tokenizer: Tokenizer) -> str:
    """Return the type of a tokenizer's model, such as BPE; '' if its file does not say it."""
    model = _content(tokenizer)["model"]
    return str(model.get("type", "BPE" if "merges" in model else ""))


def structure(tokenizer: Tokenizer) -> str:
    """Return a hash of the steps of a tokenizer that normalize and split text."""
    return _hash(_splitting(tokenizer))


def showing(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer with the same steps and a vocabulary that shows where pretokens end.

    Its merges are all pairs of a byte that ends a character and one that begins a character.
    One that is not a byte-level BPE keeps its vocabulary. Neither has added tokens.
    """
    content = _content(tokenizer)
    if not is_byte_level(content):
        return replace(for_engine(tokenizer, AddedTokens()), added=())
    names = byte_characters()
    first = [names[byte] for byte in (*range(0x80), *range(0xC2, 0xF5))]
    last = [names[byte] for byte in (*range(0x80), *range(0x80, 0xC0))]
    merges = [(left, right) for left in last for right in first]
    tokens = [*(names[byte] for byte in range(256)), *map("".join, merges)]
    vocab = {token: id_ for id_, token in enumerate(tokens)}
    model = {**content["model"], "unk_token": None, "vocab": vocab, "merges": merges}
    unused = dict.fromkeys(("post_processor", "decoder", "truncation", "padding"))
    changed = {**content, **unused, "added_tokens": [], "model": model}
    text = as_text(changed)
    return replace(tokenizer, json=text, vocab_size=len(vocab), added=())


@cache
def _table() -> dict[str, Any]:
    """Return the shipped results: by version of the reference, then by structure."""
    table: dict[str, Any] = json.loads(Path(__file__).with_name("differences.json").read_bytes())
    return table


def _versions(tokenizer: Tokenizer, engine: str) -> tuple[str, str]:
    return (
        engine_version(REFERENCE, tokenizer),
        f"{engine} {engine_version(engine, tokenizer)}",
    )


def _cache_key(tokenizer: Tokenizer, versions: Sequence[str]) -> str:
    """Return the key of a kept result; without a vocabulary of ours, that of the file counts."""
    own = "" if is_byte_level(_content(tokenizer)) else tokenizer.identity + tokenizer.json
    return _hash([_VERSION, *versions, _splitting(tokenizer), own, unicodedata.unidata_version])


def _hash(value: Any) -> str:
    return xxhash.xxh3_128_hexdigest(canonical_json(value))


def _content(tokenizer: Tokenizer) -> Content:
    """Return the content of a tokenizer.json without its merges; an empty model without one."""
    if not tokenizer.json:
        return {"model": {"type": ""}}
    return outline(tokenizer.json, where=tokenizer.name)


def _splitting(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return what decides how a tokenizer normalizes and splits text, without its vocabulary."""
    content = _content(tokenizer)
    names = () if is_byte_level(content) else _OPTIONS
    options = {key: content["model"].get(key) or None for key in names}
    splits = [
        {"use_regex": True, **step} if step.get("type") == "ByteLevel" else step
        for step in steps(content, "pre_tokenizer")
    ]
    return {
        "kind": tokenizer.kind,
        "model": {"type": content["model"].get("type", "BPE"), **options},
        "normalizer": steps(content, "normalizer"),
        "pre_tokenizer": [
            {key: value for key, value in step.items() if key != "trim_offsets"} for step in splits
        ],
    }
