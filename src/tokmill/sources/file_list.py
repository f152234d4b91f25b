"""The list of input files: each file once, even if several links, globs or directories reach it.

A file that the user names several times is read each time. A file that a directory, a glob or a
link reaches again is read once: its own name counts before a link, an earlier place before a later.
"""

from __future__ import annotations

import os
from array import array
from enum import Enum, IntEnum
from typing import TYPE_CHECKING

import numpy as np

from tokmill.sources.names import what_to_do
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from tokmill.sources.slices import SourceFile

_MOST_NAMED = 3


class Way(IntEnum):
    """How a file was reached; if a file is reached in several ways, the lowest value is used."""

    NAMED = 0
    LISTED = 1
    LINKED = 2


class Ignored(Enum):
    """Reason why a path is ignored: its name in the singular and the plural."""

    UNKNOWN = ("file of unknown ending", "files of unknown ending")
    DATASET = ("dataset that tokmill made", "datasets that tokmill made")
    NOWHERE = ("link that leads nowhere", "links that lead nowhere")
    LOOP = ("link to a directory read already", "links to directories read already")
    SPECIAL = ("pipe, socket or device", "pipes, sockets or devices")
    AGAIN = ("file reached a second time", "files reached a second time")


class FileList:
    """Collects files in order; needs 9 bytes per file besides the files themselves."""

    def __init__(self) -> None:
        self.files: list[SourceFile] = []
        self._keys = array("q")
        self._ways = bytearray()
        self._ignored: dict[Ignored, list[str]] = {}

    def add(self, file: SourceFile, way: Way, identity: tuple[object, ...]) -> None:
        """Add a file; `identity` is its device and inode, or another unique key."""
        self.files.append(file)
        self._keys.append(hash(identity))
        self._ways.append(way)

    def ignore(self, path: str, why: Ignored) -> None:
        """Record a path that is ignored."""
        self._ignored.setdefault(why, []).append(path)

    def n_ignored(self, why: Ignored) -> int:
        """Return how many paths were ignored for a reason."""
        return len(self._ignored.get(why, ()))

    def notes(self) -> list[str]:
        """Return a line for each reason for which paths were ignored."""
        lines: list[str] = []
        for why in Ignored:
            if paths := sorted(self._ignored.get(why, ())):
                lines += _by_ending(paths) if why is Ignored.UNKNOWN else [_note(paths, why.value)]
        return lines

    def remove_repeated(self) -> list[str]:
        """Remove files that were reached again; return a warning if the user named some twice."""
        _, number, counts = np.unique(self._keys, return_inverse=True, return_counts=True)
        same: dict[tuple[str, int, int, int, int], list[int]] = {}
        for i in np.flatnonzero(counts[number] > 1).tolist():  # equal hashes are compared again
            same.setdefault(_identity(self.files[i].path), []).append(i)
        named: list[int] = []
        again: set[int] = set()
        for indices in same.values():
            best = min(self._ways[i] for i in indices)
            kept = [i for i in indices if self._ways[i] == best]
            if best == Way.NAMED:
                named += kept[:1] if len(kept) > 1 else []
            else:
                kept = kept[:1]
            again.update(set(indices) - set(kept))
        for i in sorted(again):
            self.ignore(self.files[i].path, Ignored.AGAIN)
        paths = [self.files[i].path for i in sorted(named)]
        self.files = [file for i, file in enumerate(self.files) if i not in again]
        if not named:
            return []
        words = "a file is" if len(paths) == 1 else f"{plural(len(paths), 'file')} are"
        return [f"{words} named more than once, and read each time ({_some(paths)})"]


def _identity(path: str) -> tuple[str, int, int, int, int]:
    """Return a key that only the same file has; the name itself if the path is not a file.

    On some mounts several files have one inode: size and time still distinguish most of them, and
    reading a file twice is better than losing one. Inode 0 means "none".
    """
    try:
        stat = os.stat(path)  # noqa: PTH116  strings are what is at hand
    except OSError:
        return path, 0, 0, 0, 0
    name = "" if stat.st_ino else os.path.realpath(path)
    return name, stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _by_ending(paths: list[str]) -> list[str]:
    """Return a line for each kind of file that is not read, with advice if there is some."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for path in paths:
        kinds.setdefault(what_to_do(path), []).append(path)
    lines = []
    for (name, advice), alike in sorted(kinds.items(), reverse=True):
        words = (name, f"{name}s") if name else Ignored.UNKNOWN.value
        lines.append(_note(alike, words) + (f": {advice}" if advice else ""))
    return lines


def _note(paths: list[str], words: tuple[str, str]) -> str:
    return f"ignored: {len(paths):,} {words[len(paths) > 1]} ({_some(paths)})"


def _some(paths: list[str]) -> str:
    return ", ".join(paths[:_MOST_NAMED]) + (", …" if len(paths) > _MOST_NAMED else "")
