"""Check the kinds of a manifest's values, so that a forged one gives a message, no traceback."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tokmill.dataset.layout import DATASET_FILE, PLAN, SPLITS
from tokmill.settings.schema import CHECKSUMS

_MOST_BINS = 64
_MOST = 1 << 63
_ANY = "*"
"""In a shape: all keys of an object, with values of one kind."""


class _Kind(NamedTuple):
    """The kind of a value that is no container, in words, and whether a value is one."""

    words: str
    is_one: Callable[[Any], bool]


def _whole(low: int, stop: int = _MOST) -> _Kind:
    return _Kind(f"a whole number from {low}", lambda v: type(v) is int and low <= v < stop)


def _text(words: str, pattern: str) -> _Kind:
    matches = re.compile(pattern, re.DOTALL).fullmatch
    return _Kind(words, lambda value: isinstance(value, str) and matches(value) is not None)


def _one_of(*texts: str) -> _Kind:
    return _Kind(" or ".join(texts), lambda value: value in texts)


def _is_range(value: Any) -> bool:
    """Return whether a value is the first and the last of a range of characters."""
    if not isinstance(value, list) or list(map(type, value)) != [int, int]:
        return False
    return bool(0 <= value[0] <= value[1] < 1 << 21)


_COUNT, _POSITIVE, _ID, _PLACE = _whole(0), _whole(1), _whole(0, 1 << 32), _whole(-1)
_NUMBER = _Kind("a number from 0", lambda v: type(v) in (int, float) and 0 <= v < _MOST)
_TEXT = _Kind("a string", lambda value: isinstance(value, str))
_FLAG = _Kind("true or false", lambda value: isinstance(value, bool))
_TOKEN = {"id": _ID, "token": _TEXT}
_BY_NAME = {_ANY: _COUNT}
_LENGTH = {"records": _COUNT, "bytes": _COUNT}
_COUNTS = {
    **dict.fromkeys(("records", "documents", "tokens", "text_bytes", "input_bytes"), _COUNT),
    **dict.fromkeys(("drops", "rejects"), _BY_NAME),
    **dict.fromkeys(("extra?", "trained_tokens?"), _COUNT),
    **dict.fromkeys(("counters?", "checks?", "unread_keys?", "fields?"), _BY_NAME),
}
_UNREAD = {
    **dict.fromkeys(("line", "text_bytes", "stored_bytes"), _COUNT),
    **dict.fromkeys(("byte_offset", "stored_byte"), _PLACE),
    **dict.fromkeys(("reason", "message"), _TEXT),
}
_CHARACTERS = [_Kind("the first and the last code point of a range", _is_range)]
_SCAN = {
    **{"differs": _CHARACTERS, "uncompared?": _CHARACTERS, "refused": _TEXT},
    **dict.fromkeys(("n_characters", "n_sequences"), _COUNT),
}


def _shards(pattern: str) -> list[Any]:
    name = _text("the name of a shard", pattern)
    numbers = {"documents": _POSITIVE, "tokens": _POSITIVE, "first_slice?": _COUNT}
    return [{"name": name, "split": _one_of(*SPLITS), **numbers}]


_SHAPE = {
    "format_version": _COUNT,
    "kind?": _one_of("pretrain", "sft"),
    "config": {
        "tokenizer": dict.fromkeys(("path", "pattern", "control_tokens_in_text"), _TEXT),
        "sft?": {"weights": _TEXT, "too_long": _TEXT, "packing": _COUNT, "packed_rows": _FLAG},
    },
    "tokenizer": {
        "name": _TEXT,
        "sha256": _TEXT,
        "vocab_size": _ID,
        "eos": _TOKEN,
        "bos": (_TOKEN, None),
    },
    "fields_read?": [_TEXT],
    "readings?": [{"source": _TEXT, "files": _TEXT, "settings": {}, "fields_read?": [_TEXT]}],
    "engine": {
        "name": _TEXT,
        "version": _text("a string that is not blank", r".*\S.*"),
        "reason": _TEXT,
        "mb_per_s": {_ANY: _NUMBER},
        "n_checked": _COUNT,
        "refused": {_ANY: _TEXT},
        "spot_share?": _NUMBER,
        "reference?": _TEXT,
        "scan?": (_SCAN, None),
        "scan_kept?": _FLAG,
    },
    "dtype": _one_of("uint16", "uint32"),
    "totals": {
        **_COUNTS,
        "unread?": dict.fromkeys(("files", "text_bytes", "stored_bytes"), _COUNT),
    },
    "length_histogram": [_COUNT],
    "sources": [{"path": _TEXT, **_COUNTS, "unread?": [_UNREAD], "slices?": [_LENGTH]}],
    "shards": _shards("(?:train|val)-[0-9]{7,}-[0-9]{4,}"),
    "files": [
        {
            "name": _text(
                "the name of a file of a dataset", f"{re.escape(PLAN)}|{DATASET_FILE.pattern}"
            ),
            "bytes": _COUNT,
            **{f"{name}?": _text("64 hexadecimal digits", "[0-9a-f]{64}") for name in CHECKSUMS},
        }
    ],
    "run": {
        "wall_s": _NUMBER,
        "text_bytes_per_s": _NUMBER,
        "peak_memory_bytes": _COUNT,
        "resumed_parts": _COUNT,
    },
    "mask?": {
        **dict.fromkeys(("preset", "boundary", "template", "template_sha256"), _TEXT),
        "alignment": _TEXT,
        "trained": [_TEXT],
        "ends": {"rule": _TEXT, "last_ids": [_ID]},
        "cut": _COUNT,
    },
    "packs?": {
        _ANY: {
            **dict.fromkeys(("capacity", "rows", "samples", "tokens"), _POSITIVE),
            "fill": _NUMBER,
            "bytes_per_sample": _NUMBER,
            "shards?": _shards("packed-(?:train|val)-[0-9]{4,}"),
        }
    },
}
"""The kind of each value: `[kind]` for a list, `(kind, None)` if it can be null, or an object.

A key with "?" can be missing."""


def shape_problem(manifest: Mapping[str, Any]) -> str:
    """Return a line on the first value of a wrong kind, with its place, or ''.

    Unknown keys are ignored: a newer version may have added them.
    """
    return _problem(manifest, _SHAPE, "") or _contradiction(manifest)


def _contradiction(manifest: Mapping[str, Any]) -> str:
    """Return a line on two values that contradict each other, or ''."""
    for section, settings in manifest["config"].items():
        if not isinstance(settings, dict):
            return _expected(f"config.{section}", "an object", settings)
    is_sft = manifest.get("kind") == "sft"
    if is_sft != ("mask" in manifest) or is_sft != ("sft" in manifest["config"]):
        return "its kind, its mask and config.sft do not agree"
    if len(manifest["length_histogram"]) > _MOST_BINS:
        return f"length_histogram: more than {_MOST_BINS} entries"
    for entry in manifest["files"]:
        if sum(name in entry for name in CHECKSUMS) != 1:
            return f"files: {entry['name']}: expected one sum, {' or '.join(CHECKSUMS)}"
    packs = manifest.get("packs", {})
    if not packs.keys() <= set(SPLITS):
        return f"packs: expected {' or '.join(SPLITS)}, found {_shown(next(iter(packs)))}"
    packed = (entry for pack in packs.values() for entry in pack.get("shards", ()))
    for entry in (*manifest["shards"], *packed):
        if entry["name"].removeprefix("packed-").partition("-")[0] != entry["split"]:
            return f"shards: {entry['name']} has the split {entry['split']}"
    return ""


def _problem(value: Any, shape: Any, where: str) -> str:
    """Return a line on the first value that is not of its kind, or ''; `where`: its place."""
    if isinstance(shape, _Kind):
        return "" if shape.is_one(value) else _expected(where, shape.words, value)
    if isinstance(shape, tuple):
        return "" if value is None else _problem(value, shape[0], where)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return _expected(where, "a list", value)
        inside = (_problem(entry, shape[0], f"{where}[{i}]") for i, entry in enumerate(value))
        return next(filter(None, inside), "")
    if not isinstance(value, dict):
        return _expected(where, "an object", value)
    if _ANY in shape:
        inside = (_problem(entry, shape[_ANY], f"{where}.{key}") for key, entry in value.items())
        return next(filter(None, inside), "")
    for name, kind in shape.items():
        key = name.removesuffix("?")
        place = f"{where}.{key}" if where else key
        if key in value:
            if problem := _problem(value[key], kind, place):
                return problem
        elif key == name:
            return f"{place}: missing"
    return ""


def _expected(where: str, words: str, value: Any) -> str:
    return f"{where}: expected {words}, found {_shown(value)}"


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
