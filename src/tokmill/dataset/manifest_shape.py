"""Check the kinds of a manifest's values, so that a forged one gives a message, no traceback."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import starmap
from typing import Any

from tokmill.dataset.layout import DATASET_FILE, LAST_PIECES, PLAN, SPLITS
from tokmill.settings.schema import CHECKSUMS

_MOST_BINS = 64
_MOST = 1 << 63
_ANY = "*"
"""In a shape: all keys of an object, with values of one kind."""

_COUNT, _POSITIVE, _PLACE = range(_MOST), range(1, _MOST), range(-1, _MOST)
_ID = range(1 << 32)
_NUMBER, _TEXT, _FLAG = float, str, bool
_TOKEN = {"id": _ID, "token": _TEXT}
_BY_NAME = {_ANY: _COUNT}
_LENGTH = {"records": _COUNT, "bytes": _COUNT}
_COUNTS = {
    **dict.fromkeys(("records", "documents", "tokens", "text_bytes", "input_bytes"), _COUNT),
    **dict.fromkeys(("drops", "rejects"), _BY_NAME),
    **dict.fromkeys(("extra?", "trained_tokens?"), _COUNT),
    **dict.fromkeys(("counters?", "checks?", "unread_keys?", "fields?", "lost_tokens?"), _BY_NAME),
}
_UNREAD = {
    **dict.fromkeys(("line", "text_bytes", "stored_bytes"), _COUNT),
    **dict.fromkeys(("byte_offset", "stored_byte"), _PLACE),
    **dict.fromkeys(("reason", "message"), _TEXT),
}
_CHARACTERS = [[range(1 << 21), range(1 << 21)]]  # the first and the last of a range
_SCAN = {
    **{"differs": _CHARACTERS, "uncompared?": _CHARACTERS, "refused": _TEXT},
    **dict.fromkeys(("n_characters", "n_sequences"), _COUNT),
}


def _shards(pattern: str) -> list[Any]:
    numbers = {"documents": _POSITIVE, "tokens": _POSITIVE, "first_slice?": _COUNT}
    return [{"name": re.compile(pattern), "split": set(SPLITS), **numbers}]


_SHAPE = {
    "format_version": _COUNT,
    "kind?": {"pretrain", "sft"},
    "config": {
        "tokenizer": dict.fromkeys(("path", "pattern", "control_tokens_in_text"), _TEXT),
        "sft?": {"weights": _TEXT, "too_long": _TEXT, "packing": _COUNT, "packed_rows": _FLAG},
    },
    "noticed?": {_ANY: [[_COUNT]]},
    "tokenizer": {
        "name": _TEXT,
        "sha256": _TEXT,
        "vocab_size": _ID,
        "eos": _TOKEN,
        "bos": (_TOKEN, None),
    },
    "fields_read?": [_TEXT],
    "keep?": [_TEXT],
    "readings?": [{"source": _TEXT, "files": _TEXT, "settings": {}, "fields_read?": [_TEXT]}],
    "engine": {
        "name": _TEXT,
        "version": re.compile(r"(?s:.*\S.*)"),
        "reason": _TEXT,
        "mb_per_s": {_ANY: _NUMBER},
        "n_checked": _COUNT,
        "refused": {_ANY: _TEXT},
        "spot_share?": _NUMBER,
        "reference?": _TEXT,
        "scan?": (_SCAN, None),
        "scan_kept?": _FLAG,
        "added_tokens?": {"given": [_COUNT], "characters": _CHARACTERS, "strings": [_TEXT]},
    },
    "dtype": {"uint16", "uint32"},
    "totals": {
        **_COUNTS,
        "unread?": dict.fromkeys(("files", "text_bytes", "stored_bytes"), _COUNT),
    },
    "length_histogram": [_COUNT],
    "sources": [{"path": _TEXT, **_COUNTS, "unread?": [_UNREAD], "slices?": [_LENGTH]}],
    "shards": _shards("(?:train|val)-[0-9]{7,}-[0-9]{4,}"),
    "files": [
        {
            "name": re.compile(f"{re.escape(PLAN)}|{DATASET_FILE.pattern}"),
            "bytes": _COUNT,
            **{f"{name}?": re.compile("[0-9a-f]{64}") for name in CHECKSUMS},
        }
    ],
    "run": {
        **dict.fromkeys(("wall_s", "text_bytes_per_s", "start_s?"), _NUMBER),
        **dict.fromkeys(("peak_memory_bytes", "resumed_parts"), _COUNT),
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
            "bytes_per_sample?": _NUMBER,
            "last?": set(LAST_PIECES),
            **dict.fromkeys(("pieces?", "padding?", "left_out?"), _COUNT),
            "shards?": _shards("packed-(?:train|val)-[0-9]{4,}"),
        }
    },
}
"""The kind of each value: `[kind]` for a list, one with more kinds for so many entries, an object,
`(kind, None)` if it can be null, a range of whole numbers, a set of strings, a pattern,
or a type. A key with "?" can be missing."""


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
    if isinstance(shape, tuple):
        return "" if value is None else _problem(value, shape[0], where)
    if not isinstance(shape, list | dict):
        is_one, words = _simple(value, shape)
        return "" if is_one else _expected(where, words, value)
    inside: Iterator[tuple[Any, Any, str]]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return _expected(where, "a list", value)
        kinds = shape if len(shape) > 1 else shape * len(value)
        if len(kinds) != len(value):
            return f"{where}: expected {len(kinds)} entries, found {len(value)}"
        inside = ((entry, kinds[i], f"{where}[{i}]") for i, entry in enumerate(value))
    elif not isinstance(value, dict):
        return _expected(where, "an object", value)
    elif _ANY in shape:
        inside = ((entry, shape[_ANY], f"{where}.{key}") for key, entry in value.items())
    else:
        prefix = f"{where}." if where else ""
        for name in shape:
            if not name.endswith("?") and name not in value:
                return f"{prefix}{name}: missing"
        keys = ((name, name.removesuffix("?")) for name in shape)
        inside = ((value[key], shape[n], f"{prefix}{key}") for n, key in keys if key in value)
    return next(filter(None, starmap(_problem, inside)), "")


def _simple(value: Any, kind: Any) -> tuple[bool, str]:
    """Return whether a value that is no container is of a kind, and what the kind is called."""
    if isinstance(kind, range):
        return type(value) is int and value in kind, f"a whole number from {kind.start}"
    if isinstance(kind, set):
        return isinstance(value, str) and value in kind, " or ".join(sorted(kind))
    if isinstance(kind, re.Pattern):
        is_one = isinstance(value, str) and kind.fullmatch(value) is not None
        return is_one, f"a string like {_shown(kind.pattern)}"
    if kind is _NUMBER:
        return type(value) in (int, float) and 0 <= value < _MOST, "a number from 0"
    return isinstance(value, kind), "a string" if kind is _TEXT else "true or false"


def _expected(where: str, words: str, value: Any) -> str:
    return f"{where}: expected {words}, found {_shown(value)}"


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
