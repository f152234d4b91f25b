"""Names and constants of the on-disk format, version 1. The format page is docs/format.md."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.errors import StateError, TokenizerError
from tokmill.storage import storage_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


FORMAT_VERSION = 1
SHARD_BYTES = 1 << 30
"""Default size of a full shard's `.bin`."""

MANIFEST = "manifest.json"
PLAN = "plan.json"
PARTS = "parts"
REJECTS = "rejects"
FOLDERS = (PARTS, REJECTS)
"""The only directories inside a dataset."""

SPLITS = ("train", "val")
SIDECARS: dict[str, np.dtype[Any]] = {"mask": np.dtype("u1"), "weight": np.dtype("<f4")}
"""What may stand beside a `.bin`, token by token: ending and dtype."""

DATASET_FILE = re.compile(
    r"(?:train|val)-(?P<shard>[0-9]{7,})-[0-9]{4,}\.(?:bin|idx|mask|weight)"
    r"|parts/(?P<record>[0-9]{7,})(?:-[0-9]{4,})?\.json"
    r"|rejects/(?P<rejects>[0-9]{7,})-[0-9]{4,}\.jsonl"
    r"|packed-(?:train|val)-[0-9]{4,}\.(?:bin|idx|mask|weight)"
    r"|packs-(?:train|val)-(?:rows|samples)\.bin"
)
"""A file that a run writes besides plan and manifest, relative to its directory."""

_STEP_RECORD = re.compile(r"parts/(?P<part>[0-9]{7,})-[0-9]{4,}\.json")

PRIVATE_FILE = re.compile(
    r"\.(?P<name>.+)\.[0-9]+-[0-9a-f]{8}\.tmp"  # see storage.PendingFile
    r"|\.[0-9]{7,}\.checkpoint"
)
"""The name, without its folder, of a file that is outside the dataset and that a run may remove."""


def shard_stem(split: str, part: int, commit: int) -> str:
    """Give a shard's name without ending; names sort in the order of the dataset."""
    return f"{split}-{part:07d}-{commit:04d}"


def packed_stem(split: str, number: int) -> str:
    """Give the name, without ending, of a shard of packed rows."""
    return f"packed-{split}-{number:04d}"


def pack_names(split: str) -> tuple[str, str]:
    """Give the names of a split's pack index: rows, samples."""
    return f"packs-{split}-rows.bin", f"packs-{split}-samples.bin"


def part_name(part: int) -> str:
    """Give the name of a part's commit record inside `parts/`."""
    return f"{part:07d}.json"


def commit_name(part: int, commit: int) -> str:
    """Give the name of one commit's commit record inside `parts/`, while its part is unfinished."""
    return f"{part:07d}-{commit:04d}.json"


def is_part_record(name: str) -> bool:
    """Return whether a name inside `parts/` is that of a part's record."""
    return re.fullmatch(r"[0-9]{7,}\.json", name) is not None


def is_of_finished_part(name: str, is_there: Callable[[str], bool]) -> bool:
    """Return whether `name` is the record of a commit whose part has its record, which says it all.

    Names are relative to the dataset. A kill can leave one; it says nothing new.
    """
    found = _STEP_RECORD.fullmatch(name)
    return found is not None and is_there(f"{PARTS}/{found['part']}.json")


def rejects_name(part: int, commit: int) -> str:
    """Give the name of one commit's rejects inside `rejects/`."""
    return f"{part:07d}-{commit:04d}.jsonl"


def token_dtype(name: str, max_id: int) -> np.dtype[np.unsignedinteger]:
    """Choose the dtype of a `.bin`: little-endian uint16 if every id fits, else uint32.

    Args:
        name: `auto`, `uint16` or `uint32`.
        max_id: the largest id that the run can write.

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


def check_format_version(found: object, where: Path) -> None:
    """Refuse a dataset of a newer format.

    Raises:
        StateError: the version is not a number, or newer than this reader knows.
    """
    if not isinstance(found, int):
        raise StateError(f"{where}: damaged: format version {found!r} is no number")
    if found > FORMAT_VERSION:
        raise StateError(
            f"{where}: format version {found} is newer than version {FORMAT_VERSION}, "
            "which this tokmill reads: install a newer tokmill"
        )


def dataset_entries(directory: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield what stands in a directory and in its two folders, sorted, by name relative to it.

    A link in place of a folder is not followed. One folder's names are held at a time.

    Raises:
        StorageError: a folder cannot be read.
    """
    for folder in ("", *FOLDERS):
        place = directory / folder
        if folder and (place.is_symlink() or not place.is_dir()):
            continue
        with storage_errors(place), os.scandir(place) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            yield (f"{folder}/{entry.name}" if folder else entry.name), entry
