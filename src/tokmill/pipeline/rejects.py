"""The rejects of a step as a file, and one reject as a line for a person."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING

from tokmill.shards.layout import REJECTS
from tokmill.shards.writer import FileEntry
from tokmill.storage import PendingFile

if TYPE_CHECKING:
    from pathlib import Path

    from tokmill.batch import Place, Reject


class RejectsFile:
    """The rejects of one step, one JSON object a line."""

    def __init__(self, directory: Path, name: str) -> None:
        self._name = f"{REJECTS}/{name}"
        self._pending = PendingFile(directory / self._name)
        self._sha256 = hashlib.sha256()
        self._n_bytes = 0

    def append(self, source: str, place: Place, reject: Reject) -> None:
        """Add one reject; raw bytes that are not UTF-8 are kept as base64."""
        entry = {
            "source": source,
            "byte_offset": place.byte_offset,
            "line": place.line,
            "reason": reject.reason,
            "message": reject.message,
        }
        try:
            entry["raw"] = reject.raw.decode()
        except UnicodeDecodeError:
            entry["raw_base64"] = base64.b64encode(reject.raw).decode()
        line = json.dumps(entry, ensure_ascii=True).encode() + b"\n"
        self._sha256.update(line)
        self._n_bytes += len(line)
        self._pending.write(line)

    def commit(self) -> FileEntry:
        """Make the file appear."""
        self._pending.commit()
        return FileEntry(self._name, self._n_bytes, self._sha256.hexdigest())

    def discard(self) -> None:
        """Remove it."""
        self._pending.discard()


def describe_reject(source: str, place: Place, reject: Reject) -> str:
    """Say in one line where a reject stands and why it is one."""
    where = f"{source}:{place.line}"
    if place.byte_offset >= 0:
        where += f" (byte {place.byte_offset})"
    return f"{where}: {reject.reason}: {reject.message}"
