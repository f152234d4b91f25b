"""The files of rejects: one JSON object a line for each record that could not become tokens."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tokmill.dataset.layout import REJECTS
from tokmill.dataset.writer import HashedFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from tokmill.values import RecordPlace, Reject


class RejectsFile(HashedFile):
    """The file of rejects of one part."""

    def __init__(self, directory: Path, name: str, algorithm: str) -> None:
        super().__init__(directory, f"{REJECTS}/{name}", algorithm)

    def append(self, source: str, place: RecordPlace, reject: Reject) -> None:
        """Add one reject; raw bytes that are not UTF-8 are written as base64."""
        entry = _entry(source, place, reject)
        try:
            entry["raw"] = reject.raw.decode()
        except UnicodeDecodeError:
            entry["raw_base64"] = base64.b64encode(reject.raw).decode()
        self.add(json.dumps(entry, ensure_ascii=True).encode() + b"\n")


def _entry(source: str, place: RecordPlace, reject: Reject) -> dict[str, Any]:
    return {
        "source": source,
        "byte_offset": place.byte_offset,
        "line": place.line,
        "reason": reject.reason,
        "message": reject.message,
    }


def read_rejects(paths: Iterable[Path]) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of files of rejects; a file that is gone or damaged is passed over."""
    for path in paths:
        with suppress(OSError, ValueError, RecursionError), path.open("rb") as file:
            yield from map(json.loads, file)


def describe_reject(source: str, place: RecordPlace, reject: Reject) -> str:
    """Return a line with the place and the reason of a reject."""
    return describe_entry(_entry(source, place, reject))


def describe_entry(entry: Mapping[str, Any]) -> str:
    """Return the line of `describe_reject` for an entry of a file."""
    where = f"{entry['source']}:{entry['line']}"
    if entry["byte_offset"] >= 0:
        where += f" (byte {entry['byte_offset']})"
    return f"{where}: {entry['reason']}: {entry['message']}"
