"""The list of input files: each file once, even if several links, globs or directories reach it.

A file that the user names several times is read each time. A file that a directory, a glob or a
link reaches again is read once: its own name counts before a link, an earlier place before a later.
"""

from __future__ import annotations

import os
from array import array
from enum import Enum, IntEnum
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from tokmill.sources.names import what_to_do
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

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
        named: list[int] = []
        dropped: set[int] = set()
        for group in self._same():
            best = min(self._ways[i] for i in group)
            kept = [i for i in group if self._ways[i] == best]
            if best == Way.NAMED:
                named += kept[:1] * (len(kept) > 1)
            else:
                kept = kept[:1]
            dropped.update(set(group) - set(kept))
        paths = [self.files[i].path for i in sorted(named)]
        for i in sorted(dropped):
            self.ignore(self.files[i].path, Ignored.AGAIN)
        if dropped:
            self.files = [file for i, file in enumerate(self.files) if i not in dropped]
        if not named:
            return []
        words = "a file is" if len(paths) == 1 else f"{plural(len(paths), 'file')} are"
        return [f"{words} named more than once, and read each time ({_some(paths)})"]

    def _same(self) -> Iterator[list[int]]:
        """Yield the indices that are one file; files with equal keys are compared again."""
        keys = np.frombuffer(self._keys, np.int64) if self._keys else np.zeros(0, np.int64)
        for numbers in _repeated(keys):
            by_file = sorted((_identity(self.files[i].path), i) for i in numbers)
            for _, group in groupby(by_file, key=lambda pair: pair[0]):
                if len(same := [i for _, i in group]) > 1:
                    yield same


def _repeated(keys: npt.NDArray[np.int64]) -> Iterator[list[int]]:
    order = np.argsort(keys, kind="stable")
    bounds = np.flatnonzero(np.diff(keys[order])) + 1
    if len(bounds) + 1 < len(keys):
        for group in np.split(order, bounds):
            if len(group) > 1:
                yield group.tolist()


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
    for (name, advice), found in sorted(kinds.items(), reverse=True):
        words = (name, f"{name}s") if name else Ignored.UNKNOWN.value
        lines.append(_note(found, words) + (f": {advice}" if advice else ""))
    return lines


def _note(paths: list[str], words: tuple[str, str]) -> str:
    return f"ignored: {len(paths):,} {words[len(paths) > 1]} ({_some(paths)})"


def _some(paths: list[str]) -> str:
    return ", ".join(paths[:_MOST_NAMED]) + (", …" if len(paths) > _MOST_NAMED else "")
