"""The rejects of a commit as a file, and one reject as a line for a person."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

from tokmill.dataset.layout import REJECTS
from tokmill.dataset.writer import open_pending

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from tokmill.dataset.checksum import FileEntry
    from tokmill.values import Place, Reject


class RejectsFile:
    """The rejects of one commit, one JSON object a line.

    `left`: what `checkpoint` gave in an earlier attempt, to go on behind it.
    """

    def __init__(
        self, directory: Path, name: str, algorithm: str, left: FileEntry | None = None
    ) -> None:
        self._name = f"{REJECTS}/{name}"
        self._pending, self._digest = open_pending(directory / self._name, algorithm, left)

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
        self._digest.update(line)
        self._pending.write(line)

    def commit(self) -> FileEntry:
        """Make the file appear."""
        self._pending.commit()
        return self._digest.entry(self._name)

    def checkpoint(self) -> FileEntry:
        """Make durable what is written, and return it under its temporary name."""
        self._pending.sync()
        return self._digest.entry(f"{REJECTS}/{self._pending.temporary}")

    def discard(self, keep: Collection[str] = ()) -> None:
        """Close and remove it, unless its temporary name is kept."""
        self._pending.discard(keep)


def describe_reject(source: str, place: Place, reject: Reject) -> str:
    """Say in one line where a reject stands and why it is one."""
    where = f"{source}:{place.line}"
    if place.byte_offset >= 0:
        where += f" (byte {place.byte_offset})"
    return f"{where}: {reject.reason}: {reject.message}"
