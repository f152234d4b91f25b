"""The record of an export: what it is, and the checksums of its files; and checking them again."""

from __future__ import annotations

import json
import os
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from tokmill.dataset.checksum import FileEntry, digest_of
from tokmill.errors import StateError
from tokmill.storage import open_regular, storage_errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RECORD = "tokmill-export.json"
"""File of an export that says what it is; written last."""


def read_record(output: Path) -> dict[str, Any]:
    """Read the record of an export.

    Raises:
        StateError: it is none.
        StorageError: it cannot be read.
    """
    path = output / RECORD
    try:
        with storage_errors(path):
            record = json.loads(path.read_bytes())
        entries = [FileEntry.from_json(file) for file in record["files"]]
        is_ours = record["format"] == "tokmill export" and all(map(_is_inside, entries))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StateError(f"{path}: damaged: {error}") from None
    if not is_ours:
        raise StateError(f"{path}: not the record of an export")
    return dict(record)


def _is_inside(entry: FileEntry) -> bool:
    path = PurePosixPath(entry.name)
    return not path.is_absolute() and ".." not in path.parts and isinstance(entry.n_bytes, int)


def file_problems(output: Path, record: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each file of an export that is missing, changed, or not in its record."""
    entries = [FileEntry.from_json(file) for file in record["files"]]
    for entry in entries:
        if problem := _problem(output / entry.name, entry):
            yield f"{entry.name}: {problem}"
    known = {RECORD, *(entry.name for entry in entries)}
    for folder, _, names in os.walk(output):
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), output)  # noqa: PTH118
            if path not in known:
                yield f"{path} is not in the record of the export"


def _problem(path: Path, entry: FileEntry) -> str:
    try:
        with open_regular(path, follow_links=True) as file:
            found = digest_of(file, entry.algorithm)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    if found.n_bytes != entry.n_bytes:
        return f"{found.n_bytes:,} bytes, the record says {entry.n_bytes:,}"
    if found.checksum() != entry.checksum:
        return f"its {entry.algorithm} does not match the record"
    return ""
