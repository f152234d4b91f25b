"""Names, dtypes and version of the files of a dataset; docs/format.md is the specification."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from tokmill.errors import StateError, TokenizerError

if TYPE_CHECKING:
    from pathlib import Path

FORMAT_VERSION = 1
SHARD_BYTES = 1 << 30
"""Default size of a full shard's `.bin`."""

MANIFEST = "manifest.json"
LOCK_NAME = ".lock"
PLAN = "plan.json"
PLAN_BEGINNING = b'{\n"bos_id":'
"""The first bytes of every plan: they tell a damaged plan from a file of another program."""

KEPT_TOKENIZER = "tokenizer.zst"
"""The tokenizer of a dataset, with which it is decoded; tasks of its run work with it."""
PARTS = "parts"
REJECTS = "rejects"
FOLDERS = (PARTS, REJECTS)
"""The only directories inside a dataset."""

SPLITS = ("train", "val")
Split = Annotated[str, frozenset(SPLITS)]
"""In values of JSON: one of them."""

SIDECARS: dict[str, np.dtype[Any]] = {"mask": np.dtype("u1"), "weight": np.dtype("<f4")}
"""Files with a value for every token beside a `.bin`: ending and dtype."""

ORIGIN = "origin"
"""The ending of the file with the record of each document; see `dataset.origins`."""

FRAGMENT, DROP = LAST_PIECES = ("fragment", "drop")
"""What becomes of the last piece of a document that is cut: packed like a document; left out."""

CUT_INDEX = re.compile(
    rf"packs-(?:train|val)-[0-9]+-(?:{FRAGMENT}|{DROP})(?:-[0-9]+)?-(?:rows|samples|pieces)\.bin"
)
"""Name of a file of a pack index for pretraining; one that is not listed is left from another."""

STOPPED_REJECTS = re.compile(r"rejects/(?P<stopped>[0-9]{7,})-stopped\.jsonl")
"""Name of what a part that was stopped had rejected until then; no finished dataset has one."""

DATASET_FILE = re.compile(
    r"(?:train|val)-(?P<shard>[0-9]{7,})-[0-9]{4,}\.(?:bin|idx|mask|weight|origin|meta)"
    r"|parts/(?P<record>[0-9]{7,})\.json"
    r"|rejects/(?P<rejects>[0-9]{7,})\.jsonl"
    r"|" + STOPPED_REJECTS.pattern + r"|packed-(?:train|val)-[0-9]{4,}\.(?:bin|idx|mask|weight)"
    r"|packs-(?:train|val)-(?:rows|samples)\.bin"
    r"|(?:duplicates|contaminated)-(?:train|val)\.bin"
    rf"|{re.escape(KEPT_TOKENIZER)}"
    r"|" + CUT_INDEX.pattern
)
"""Relative name of a file of a dataset, except plan and manifest."""

PRIVATE_FILE = re.compile(r"\.(?P<name>.+)\.(?P<process>[0-9]+)-[0-9a-f]{8}\.tmp")
"""Name, without its folder, of a file of `storage.PendingFile`, which a run may remove."""


EXPORT_RECORD = "tokmill-export.json"
"""File of an export that says what it is; written last."""

MIX_ENGINE = "mix"
"""Name of the engine of a mix in plan and manifest: nothing was encoded."""

MIX = ".mix"
"""The folder inside an output for what the tasks of a mix write for each other."""

MIX_REQUEST = f"{MIX}/request.json"
"""File of a mix that is being made: which one, and since which start of the machine."""

MIX_FILE = re.compile(
    r"\.mix/(?:(?:request|stamps|done-[a-z]+-[0-9]+)\.json"
    r"|(?:run|hashes|places|overlaps)-[0-9]+|reasons|marks|drop-records|drop-hashes"
    r"|contaminated|contaminated-marks|against-[a-z_]+)"
)
"""Relative name of a file there."""


def shard_stem(split: str, part: int, number: int) -> str:
    """Return a shard's name without ending; those of a split sort in the order of the dataset."""
    return f"{split}-{part:07d}-{number:04d}"


def packed_stem(split: str, number: int) -> str:
    """Return the name, without ending, of a shard of packed rows."""
    return f"packed-{split}-{number:04d}"


def pack_names(split: str, capacity: int, last: str, max_samples: int = 0) -> tuple[str, ...]:
    """Return the names of the files of a split's pack index: rows, samples; pieces of documents.

    `last`, `max_samples`: see `manifest.PackEntry`. If `last` is not '', documents are cut, and the
    names say how: with other rules the index has other names.
    """
    if not last:
        return f"packs-{split}-rows.bin", f"packs-{split}-samples.bin"
    stem = f"packs-{split}-{capacity}-{last}" + (f"-{max_samples}" if max_samples else "")
    return f"{stem}-rows.bin", f"{stem}-samples.bin", f"{stem}-pieces.bin"


def duplicates_name(split: str) -> str:
    """Return the name of the file that marks documents of a split which equal one before."""
    return f"duplicates-{split}.bin"


def contaminated_name(split: str) -> str:
    """Return the name of the file that marks documents of a split which share held-out text."""
    return f"contaminated-{split}.bin"


def part_name(part: int) -> str:
    """Return the name of a part's record inside `parts/`."""
    return f"{part:07d}.json"


def rejects_name(part: int) -> str:
    """Return the name of a part's file inside `rejects/`."""
    return f"{part:07d}.jsonl"


def stopped_rejects_name(part: int) -> str:
    """Return the name inside `rejects/` of what a stopped attempt at a part had rejected."""
    return f"{part:07d}-stopped.jsonl"


def token_dtype(name: str, max_id: int) -> np.dtype[np.unsignedinteger]:
    """Return the dtype of a `.bin` for `auto`, `uint16` or `uint32`; auto is uint16 if ids fit.

    Raises:
        TokenizerError: `uint16` is asked for and an id above 65,535 can be written.
    """
    if name == "uint16" and max_id > 0xFFFF:
        raise TokenizerError(
            f"dtype uint16 holds ids up to 65535, this tokenizer can emit id {max_id}: "
            "use dtype auto or uint32, or another tokenizer"
        )
    small = max_id <= 0xFFFF and name != "uint32"
    return np.dtype("<u2") if small else np.dtype("<u4")


def check_format_version(version: object, where: Path | str) -> None:
    """Check that this version of tokmill can read a format version.

    Raises:
        StateError: it is not a number, or newer.
    """
    if not isinstance(version, int):
        raise StateError(f"{where}: damaged: format version {version!r} is no number")
    if version > FORMAT_VERSION:
        raise StateError(
            f"{where}: format version {version} is newer than version {FORMAT_VERSION}, "
            "which this tokmill reads: install a newer tokmill"
        )
