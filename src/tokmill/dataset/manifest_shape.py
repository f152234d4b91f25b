"""Check the kinds of a manifest's values, so that a forged one gives a message, no traceback."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tokmill.dataset.layout import DATASET_FILE, PLAN, SPLITS
from tokmill.settings.schema import CHECKSUMS

_MOST_BINS = 64
_SHARD = re.compile(r"(?:train|val)-[0-9]{7,}-[0-9]{4,}")
_PACKED = re.compile(r"packed-(?:train|val)-[0-9]{4,}")
_HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A value that is no container: its kind in words, and the test of a value."""

    words: str
    is_one: Callable[[Any], bool]


_ANY = "*"
"""In a shape: all keys of an object, with values of one kind."""


def _whole(low: int, stop: int) -> _Leaf:
    def is_one(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and low <= value < stop

    return _Leaf(f"a whole number from {low}", is_one)


def _matching(pattern: re.Pattern[str], words: str) -> _Leaf:
    return _Leaf(words, lambda value: isinstance(value, str) and bool(pattern.fullmatch(value)))


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and 0 <= value < 1 << 63


def _is_file_name(value: Any) -> bool:
    return isinstance(value, str) and (value == PLAN or bool(DATASET_FILE.fullmatch(value)))


_COUNT, _POSITIVE, _ID = _whole(0, 1 << 63), _whole(1, 1 << 63), _whole(0, 1 << 32)
_NUMBER = _Leaf("a number from 0", _is_number)
_TEXT = _Leaf("a string", lambda value: isinstance(value, str))
_FILLED_TEXT = _Leaf("a string that is not blank", lambda v: isinstance(v, str) and bool(v.strip()))
_FLAG = _Leaf("true or false", lambda value: isinstance(value, bool))
_SPLIT = _Leaf(" or ".join(SPLITS), lambda value: value in SPLITS)
_PLACE = _whole(-1, 1 << 63)
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


def _is_range(value: Any) -> bool:
    """Return whether a value is the first and the last of a range of characters."""
    if not isinstance(value, list) or list(map(type, value)) != [int, int]:
        return False
    return bool(0 <= value[0] <= value[1] < 1 << 21)


_CHARACTERS = [_Leaf("the first and the last code point of a range", _is_range)]
_SCAN = {
    "differs": _CHARACTERS,
    "uncompared?": _CHARACTERS,
    "refused": _TEXT,
    **dict.fromkeys(("n_characters", "n_sequences"), _COUNT),
}


def _shards(names: re.Pattern[str]) -> list[Any]:
    name = _matching(names, "the name of a shard")
    numbers = {"documents": _POSITIVE, "tokens": _POSITIVE, "first_slice?": _COUNT}
    return [{"name": name, "split": _SPLIT, **numbers}]


_SHAPE = {
    "format_version": _COUNT,
    "kind?": _Leaf("pretrain or sft", lambda value: value in ("pretrain", "sft")),
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
        "version": _FILLED_TEXT,
        "reason": _TEXT,
        "mb_per_s": {_ANY: _NUMBER},
        "n_checked": _COUNT,
        "refused": {_ANY: _TEXT},
        "spot_share?": _NUMBER,
        "reference?": _TEXT,
        "scan?": (_SCAN, None),
        "scan_kept?": _FLAG,
    },
    "dtype": _Leaf("uint16 or uint32", lambda value: value in ("uint16", "uint32")),
    "totals": {
        **_COUNTS,
        "unread?": dict.fromkeys(("files", "text_bytes", "stored_bytes"), _COUNT),
    },
    "length_histogram": [_COUNT],
    "sources": [{"path": _TEXT, **_COUNTS, "unread?": [_UNREAD], "slices?": [_LENGTH]}],
    "shards": _shards(_SHARD),
    "files": [
        {
            "name": _Leaf("the name of a file of a dataset", _is_file_name),
            "bytes": _COUNT,
            **{f"{name}?": _matching(_HEX, "64 hexadecimal digits") for name in CHECKSUMS},
        }
    ],
    "run": {
        "wall_s": _NUMBER,
        "text_bytes_per_s": _NUMBER,
        "peak_memory_bytes": _COUNT,
        "resumed_parts": _COUNT,
    },
    "mask?": {
        **dict.fromkeys(("preset", "boundary", "template", "alignment"), _TEXT),
        "template_sha256": _TEXT,
        "trained": [_TEXT],
        "ends": {"rule": _TEXT, "last_ids": [_ID]},
        "cut": _COUNT,
    },
    "packs?": {
        _ANY: {
            **dict.fromkeys(("capacity", "rows", "samples", "tokens"), _POSITIVE),
            "fill": _NUMBER,
            "bytes_per_sample": _NUMBER,
            "shards?": _shards(_PACKED),
        }
    },
}
"""The kind of each value: a leaf, `[kind]` for a list, `(kind, None)` if it can be null, or an
object; a key with "?" can be missing."""


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
    if isinstance(shape, tuple):
        return "" if value is None else _problem(value, shape[0], where)
    if isinstance(shape, _Leaf):
        return "" if shape.is_one(value) else _expected(where, shape.words, value)
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
            if found := _problem(value[key], kind, place):
                return found
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
