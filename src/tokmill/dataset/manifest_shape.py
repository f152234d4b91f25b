"""The shape of a manifest, and what its values say about each other.

A manifest that somebody else wrote gives a message, no traceback: every key that code reads is in
the shape, and readers rely on `contradiction`, such as that the files of each shard are listed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np

from tokmill.dataset.layout import (
    DATASET_FILE,
    LAST_PIECES,
    ORIGIN,
    PLAN,
    SIDECARS,
    SPLITS,
    pack_names,
)
from tokmill.dataset.packing import MOST_LENGTH
from tokmill.dataset.shapes import (
    ANY,
    BY_NAME,
    COUNT,
    FLAG,
    ID,
    NUMBER,
    PLACE,
    POSITIVE,
    TEXT,
    expected,
    shape_problem_of,
    shown,
)
from tokmill.dataset.sidecars import METADATA, index_bytes
from tokmill.settings.names import schema
from tokmill.settings.schema import CHECKSUMS

_MOST_BINS = 64
TOKEN = {"id": ID, "token": TEXT}
_SUM = re.compile("[0-9a-f]{64}")
_SLICE, _RECORD = range(1 << 27), range(1 << 36)
"""Numbers of slices, and of records in a slice, as an `.origin` can hold them."""

_LENGTH = {"records": _RECORD, "bytes": COUNT}
COUNTS = {
    **dict.fromkeys(("records", "documents", "tokens", "text_bytes", "input_bytes"), COUNT),
    **dict.fromkeys(("drops", "rejects"), BY_NAME),
    **dict.fromkeys(("extra?", "trained_tokens?"), COUNT),
    **dict.fromkeys(("counters?", "checks?", "unread_keys?", "fields?", "lost_tokens?"), BY_NAME),
    **dict.fromkeys(("renderers?", "named?"), BY_NAME),
}
UNREAD = {
    **dict.fromkeys(("line", "text_bytes", "stored_bytes"), COUNT),
    **dict.fromkeys(("byte_offset", "stored_byte"), PLACE),
    **dict.fromkeys(("reason", "message"), TEXT),
}
COUNTS_OF_SLICE = {**COUNTS, "unread?": [UNREAD], "length?": _LENGTH, "noticed?": {ANY: [_RECORD]}}
"""Of the counts of a slice in the record of a part."""

_CHARACTERS = [[range(1 << 21), range(1 << 21)]]  # the first and the last of a range
_SCAN = {
    **{"differs": _CHARACTERS, "uncompared?": _CHARACTERS, "refused": TEXT},
    **dict.fromkeys(("n_characters", "n_sequences"), COUNT),
}
_ADDED_TOKENS = {"given": [ID], "characters": _CHARACTERS, "strings": [TEXT]}
ENGINE = {
    "name": TEXT,
    "version": re.compile(r"(?s:.*\S.*)"),
    "reason": TEXT,
    "mb_per_s": {ANY: NUMBER},
    "n_checked": COUNT,
    "refused": {ANY: TEXT},
    "spot_share?": NUMBER,
    "reference?": TEXT,
    "scan?": (_SCAN, None),
    "scan_kept?": FLAG,
    "added_tokens?": _ADDED_TOKENS,
    "continuation?": (
        {"name": TEXT, "differs": _CHARACTERS, "added_tokens": _ADDED_TOKENS},
        None,
    ),
}
RULES = {ANY: [range(1, 1 << 31)]}
"""By name, the numbers under which documents were made; see `dataset.rules`."""

READING = {"source": TEXT, "files": TEXT, "settings": {}, "fields_read?": [TEXT]}
EXTENSION = dict.fromkeys(("kind", "name", "target", "distribution", "version", "sha256"), TEXT)
FILE = {
    "name": re.compile(f"{re.escape(PLAN)}|{DATASET_FILE.pattern}"),
    "bytes": COUNT,
    **{f"{name}?": _SUM for name in CHECKSUMS},
}

MIX: dict[str, Any] = {
    "fingerprint": TEXT,
    "settings": {},
    "sources": [
        {
            "name": TEXT,
            **dict.fromkeys(("available", "wanted", "tokens", "documents"), COUNT),
            "epochs": NUMBER,
        }
    ],
    "val_fractions?": [NUMBER],
    **dict.fromkeys(("duplicates?", "overlap?"), COUNT),
}
MIX["inputs"] = [
    {"directory": TEXT, "identity?": TEXT, "first_part": COUNT, "first_slice": _SLICE, "mix?": MIX}
]


def _shards(pattern: str) -> list[Any]:
    numbers = {"documents": POSITIVE, "tokens": POSITIVE, "first_slice?": _SLICE}
    return [{"name": re.compile(pattern), "split": set(SPLITS), **numbers}]


_SOURCES = [
    {
        "path": TEXT,
        "name?": TEXT,
        "reading?": COUNT,
        **COUNTS,
        "unread?": [UNREAD],
        "slices?": [_LENGTH],
    }
]
_SHAPE = {
    "format_version": COUNT,
    "tokmill_version?": TEXT,
    "rules?": RULES,
    "kind?": {"pretrain", "sft"},
    "noticed?": {ANY: [[_SLICE, _RECORD]]},
    "tokenizer": {
        "name": TEXT,
        "identity": TEXT,
        "vocab_size": ID,
        "eos": TOKEN,
        "bos": (TOKEN, None),
        "probe?": {"text": TEXT, "ids": [ID]},
    },
    "fields_read?": [TEXT],
    "keep?": [TEXT],
    "readings?": [READING],
    "engine": ENGINE,
    "extensions?": [EXTENSION],
    "dtype": {"uint16", "uint32"},
    "totals": {
        **COUNTS,
        "unread?": dict.fromkeys(("files", "text_bytes", "stored_bytes"), COUNT),
    },
    "length_histogram": [COUNT],
    "sources": _SOURCES,
    "shards": _shards("(?:train|val)-[0-9]{7,}-[0-9]{4,}"),
    "files": [FILE],
    "mix?": MIX,
    "run": {
        **dict.fromkeys(("wall_s", "text_bytes_per_s", "start_s?", "cpu_s?"), NUMBER),
        **dict.fromkeys(("peak_memory_bytes", "resumed_parts"), COUNT),
        **dict.fromkeys(("workers?", "threads?"), COUNT),
        "stage_s?": {ANY: NUMBER},
        "stage_cpu_s?": {ANY: NUMBER},
    },
    "mask?": {
        **dict.fromkeys(("preset", "boundary", "template", "template_sha256"), TEXT),
        **dict.fromkeys(("alignment", "turns?"), TEXT),
        "trained": [TEXT],
        "ends": {"rule": TEXT, "last_ids": [ID]},
        "cut": COUNT,
    },
    "packs?": {
        ANY: {
            "capacity": range(1, MOST_LENGTH + 1),
            **dict.fromkeys(("rows", "samples", "tokens"), POSITIVE),
            "fill": NUMBER,
            "bytes_per_sample?": NUMBER,
            "last?": set(LAST_PIECES),
            **dict.fromkeys(("pieces?", "padding?", "left_out?"), COUNT),
            "shards?": _shards("packed-(?:train|val)-[0-9]{4,}"),
        }
    },
}

_NEEDED = {
    "tokenizer": ("path", "pattern", "control_tokens_in_text"),
    "input": ("paths",),
    "output": ("dir", "shard_tokens", "val_fraction", "packing"),
    "sft": ("weights", "too_long", "packing", "packed_rows"),
}
"""Settings without which a manifest is not read, by section; only chats have `sft`."""


@cache
def _config_shape() -> dict[str, Any]:
    """Return the shape of `config`: every setting that this version knows, by section."""
    kinds: dict[Any, Any] = {int: COUNT, float: NUMBER, str: TEXT, bool: FLAG}
    kinds[tuple[str, ...]] = [TEXT]
    known = {"output.checksum": set(CHECKSUMS)}
    shape: dict[str, Any] = {}
    for section, settings in schema().items():
        needed = _NEEDED.get(section, ())
        inside = {
            name if name in needed else f"{name}?": known.get(
                setting.key, kinds.get(setting.kind, [{}])
            )
            for name, setting in settings.items()
        }
        is_needed = section in _NEEDED and section != "sft"
        shape[section if is_needed else f"{section}?"] = inside
    return shape


LISTS = ("files", "sources")
"""The two longest lists of a manifest: of a million entries, the check of them takes 30 s."""


def shape_problem(manifest: Mapping[str, Any], *, left_out: tuple[str, ...] = ()) -> str:
    """Return a line on the first value of a wrong kind, with its place, or ''.

    `left_out`: of `LISTS`, those that nobody will read without a look of its own.
    """
    shape = {name: kind for name, kind in _SHAPE.items() if name not in left_out}
    problem = (
        shape_problem_of(manifest, {**shape, "config": {ANY: {}}})
        or shape_problem_of({"config": manifest["config"]}, {"config": _config_shape()})
        or _disagreement(manifest)
    )
    for entry in () if problem or "files" in left_out else manifest["files"]:
        if sum(name in entry for name in CHECKSUMS) != 1:
            return f"files: {entry['name']}: expected one sum, {' or '.join(CHECKSUMS)}"
    return problem


def origins_shape_problem(manifest: Mapping[str, Any]) -> str:
    """Return a line on the first value of `sources` that is wrong and read for origins, or ''.

    There may be a million files, so only rows that are not as most are compared with a shape.
    """
    rows = manifest.get("sources")
    if not isinstance(rows, list):
        return expected("sources", "a list", rows)
    for i, row in enumerate(rows):
        is_usual = isinstance(row, dict) and type(row.get("path")) is str and "slices" not in row
        problem = "" if is_usual else shape_problem_of(row, {"path": TEXT, "slices?": [_LENGTH]})
        if problem:
            return f"sources[{i}]: {problem}"
    return ""


def _disagreement(manifest: Mapping[str, Any]) -> str:
    """Return a line on two values that decide how others are read and do not agree, or ''."""
    is_sft = manifest.get("kind") == "sft"
    if is_sft != ("mask" in manifest) or is_sft != ("sft" in manifest["config"]):
        return "its kind, its mask and config.sft do not agree"
    if len(manifest["length_histogram"]) > _MOST_BINS:
        return f"length_histogram: more than {_MOST_BINS} entries"
    keep = manifest.get("keep", ())
    if len(set(keep)) < len(keep):
        return "keep: a name stands there twice"
    packs = manifest.get("packs", {})
    if not packs.keys() <= set(SPLITS):
        return f"packs: expected {' or '.join(SPLITS)}, found {shown(next(iter(packs)))}"
    for split, pack in packs.items():
        if "last" in pack and not pack.keys() >= {"pieces", "padding", "left_out"}:
            return f"packs.{split}: of documents, expected pieces, padding and left_out"
    packed = (entry for pack in packs.values() for entry in pack.get("shards", ()))
    for entry in (*manifest["shards"], *packed):
        if entry["name"].removeprefix("packed-").partition("-")[0] != entry["split"]:
            return f"shards: {entry['name']} has the split {entry['split']}"
    return ""


def files_of_shards(
    shards: Iterable[Mapping[str, Any]], manifest: Mapping[str, Any]
) -> Iterator[tuple[str, int | None]]:
    """Yield the name of every file of shards, and its bytes by the counts of its shard, if known.

    `shards`: rows of the manifest, also of packed rows.
    """
    item_bytes = np.dtype(manifest["dtype"]).itemsize
    sidecars = {ending: SIDECARS[ending].itemsize for ending in sidecars_of(manifest)}
    for entry in shards:
        stem = entry["name"]
        yield f"{stem}.bin", entry["tokens"] * item_bytes
        yield f"{stem}.idx", index_bytes(entry["documents"])
        for ending, n_bytes in sidecars.items():
            yield f"{stem}.{ending}", entry["tokens"] * n_bytes
        if "first_slice" in entry:
            yield f"{stem}.{ORIGIN}", None
        if "keep" in manifest and not stem.startswith("packed-"):
            yield f"{stem}.{METADATA}", None


def files_of_packs(manifest: Mapping[str, Any]) -> Iterator[tuple[str, int | None]]:
    """Yield what `files_of_shards` does for packs: of the index, and of shards of packed rows."""
    for split, pack in manifest.get("packs", {}).items():
        n_samples = pack["pieces"] if "last" in pack else pack["samples"]
        sizes = (8 * (pack["rows"] + 1), 8 * n_samples, 8 * n_samples)
        yield from zip(pack_names(split, pack), sizes, strict=False)
        yield from files_of_shards(pack.get("shards", ()), manifest)


def sidecars_of(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the endings of the sidecars of every `.bin` of a dataset."""
    if "mask" not in manifest:
        return ()
    return ("mask", "weight") if manifest["config"]["sft"]["weights"] == "file" else ("mask",)


def contradiction(manifest: Mapping[str, Any]) -> str:
    """Return a line on two values of a manifest that contradict each other, or ''.

    `verify` says more of such values; everybody else refuses the manifest.
    """
    return _wrong_list(manifest) or _wrong_counts(manifest) or _wrong_slices(manifest)


def _wrong_list(manifest: Mapping[str, Any]) -> str:
    """Return a line on a file that is not listed, listed twice, or listed with another size."""
    names = Counter(entry["name"] for entry in manifest["files"])
    twice = next((name for name, n in names.items() if n > 1), "")
    if twice:
        return f"files: {twice} is listed twice"
    sizes = {entry["name"]: entry["bytes"] for entry in manifest["files"]}
    of_shards = files_of_shards(manifest["shards"], manifest)
    for name, n_bytes in (*of_shards, *files_of_packs(manifest)):
        if name not in sizes:
            return f"files: {name} is not listed"
        if n_bytes is not None and sizes[name] != n_bytes:
            return expected(f"files: {name}: bytes", f"{n_bytes:,}, by its counts", sizes[name])
    return ""


def _wrong_counts(manifest: Mapping[str, Any]) -> str:
    """Return a line on documents or tokens that are not those of the shards, or ''."""
    totals, shards = manifest["totals"], manifest["shards"]
    for key in ("documents", "tokens"):
        total = sum(entry[key] for entry in shards)
        if totals[key] != total:
            return expected(f"totals.{key}", f"{total:,}, those of the shards", totals[key])
    for split, pack in manifest.get("packs", {}).items():
        if split not in {entry["split"] for entry in shards}:
            return f"packs.{split}: there is no shard of {split}"
        for entry in pack.get("shards", ()):
            if entry["tokens"] != entry["documents"] * pack["capacity"]:
                return f"packs.{split}: {entry['name']}: tokens are not those of its rows"
    return ""


def _wrong_slices(manifest: Mapping[str, Any]) -> str:
    """Return a line on a number of a slice that the manifest does not have, or ''."""
    shards, sources = manifest["shards"], manifest["sources"]
    n_slices = sum(len(row.get("slices", (0,))) for row in sources)
    firsts = [entry["first_slice"] for entry in shards if "first_slice" in entry]
    if firsts and max(firsts) >= n_slices:
        return expected("shards: first_slice", f"less than {n_slices:,}", max(firsts))
    return ""
