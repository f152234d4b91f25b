"""Find the files of directories and globs, at any depth, sorted by path.

Links are followed, but each directory only once: `glob.glob` follows a link to a parent directory
forty levels deep, and never ends with two of them. Datasets made by tokmill are left out.
"""

from __future__ import annotations

import errno
import glob
import json
import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.dataset.plan_file import begins_as_plan
from tokmill.errors import StorageError, UsageError
from tokmill.sources.file_list import FileList, Ignored, Way
from tokmill.sources.names import classify, describe
from tokmill.sources.streams import unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_Key = tuple[str, int, int]
ANY_DEPTH = "**"


class Walk:
    """Adds the files of directories to a list.

    A directory that several links lead to is entered once; a link to a parent directory is ignored.
    """

    def __init__(self, found: FileList, forced: str) -> None:
        self._found = found
        self._forced = forced
        self._linked: set[_Key] = set()

    def add(self, directory: str, way: Way) -> None:
        """Add a directory that is named or matched; it may be a link itself."""
        self._linked = set()
        self._add(directory, way, (_key(directory),))

    def below(self, directory: str, *, hidden: bool) -> Iterator[tuple[str, Way]]:
        """Yield all paths that are not directories, at any depth, sorted, and their `Way`."""
        self._linked = set()
        return self._below(directory, Way.LISTED, (_key(directory),), hidden=hidden)

    def _below(
        self, directory: str, way: Way, above: tuple[_Key, ...], *, hidden: bool
    ) -> Iterator[tuple[str, Way]]:
        for entry in sorted(_entries(directory).values(), key=_order):
            if entry.name.startswith(".") and not hidden:
                continue
            path = entry.path.removeprefix("./")
            reached = Way.LINKED if entry.is_symlink() else way
            if not _is(entry.is_dir):
                yield path, reached
            elif self._may_enter(path, entry, above):
                yield from self._below(path, reached, (*above, _key(path)), hidden=hidden)

    def _add(self, directory: str, way: Way, above: tuple[_Key, ...]) -> None:
        """Add the files of a directory; sorts only the entries of one directory at a time.

        A directory sorts as its name with a slash, and every path in it begins with that: so the
        result is sorted by path.
        """
        entries = _entries(directory)
        if "dataset_dict.json" in entries:
            directory = _only_split(Path(directory)).as_posix()
            entries = _entries(directory)
        if "state.json" in entries and "dataset_info.json" in entries:
            for path in _saved_dataset(Path(directory)):
                self._take(path, "arrow", "", way)
            return
        for entry in sorted(entries.values(), key=_order):
            if not entry.name.startswith("."):
                self._add_entry(entry, way, above)

    def _add_entry(self, entry: os.DirEntry[str], way: Way, above: tuple[_Key, ...]) -> None:
        path = entry.path.removeprefix("./")  # as `Path` writes it
        way = Way.LINKED if entry.is_symlink() else way
        if _is(entry.is_dir):
            if self._may_enter(path, entry, above):
                self._add(path, way, (*above, _key(path)))
        elif not _is(entry.is_file):
            is_link = entry.is_symlink() and not os.path.exists(entry.path)  # noqa: PTH110
            self._found.ignore(path, Ignored.NOWHERE if is_link else Ignored.SPECIAL)
        else:
            data_format, compression = classify(entry.name)
            is_known = bool(data_format) and not entry.name.lower().endswith(".md")
            if self._forced == "auto" and not is_known:
                self._found.ignore(path, Ignored.UNKNOWN)
            else:
                taken = data_format if self._forced == "auto" else self._forced
                self._take(entry, taken, compression, way)

    def _may_enter(self, path: str, entry: os.DirEntry[str], above: tuple[_Key, ...]) -> bool:
        """Return whether to go into a directory; a link is followed to each directory once."""
        if is_tokmill_dataset(path):
            self._found.ignore(path, Ignored.DATASET)
            return False
        if not entry.is_symlink():
            return True
        key = _key(path)
        if key in above or key in self._linked:
            self._found.ignore(path, Ignored.LOOP)
            return False
        self._linked.add(key)
        return True

    def _take(
        self, path: Path | os.DirEntry[str], data_format: str, compression: str, way: Way
    ) -> None:
        file, identity = describe(path, data_format, compression)
        self._found.add(file, way, identity)


def _is(asked: Callable[[], bool]) -> bool:
    """Return the result of `entry.is_dir` or a similar method; False for a loop of links."""
    try:
        return asked()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return False
        raise


def _key(directory: str) -> _Key:
    """Return a key that only the same directory has; some mounts have no inodes, only 0."""
    try:
        stat = os.stat(directory)  # noqa: PTH116  strings are what is at hand
    except OSError as error:
        raise unreadable(directory, error) from None
    return "" if stat.st_ino else os.path.realpath(directory), stat.st_dev, stat.st_ino


def _entries(directory: str) -> dict[str, os.DirEntry[str]]:
    """Return the entries of a directory, by name."""
    try:
        with os.scandir(directory) as entries:
            return {entry.name: entry for entry in entries}
    except OSError as error:
        raise unreadable(directory, error) from None


def _order(entry: os.DirEntry[str]) -> str:
    return f"{entry.name}/" if _is(entry.is_dir) else entry.name


def is_tokmill_dataset(directory: str) -> bool:
    """Return whether a directory is the output of a run, which may be among its own inputs."""
    return begins_as_plan(Path(directory) / "plan.json")


def _only_split(directory: Path) -> Path:
    splits = _read_json(directory / "dataset_dict.json").get("splits")
    if not isinstance(splits, list) or not splits:
        raise UsageError(f"{directory.as_posix()}/dataset_dict.json: names no splits")
    if len(splits) > 1:
        named = ", ".join(f"{directory.as_posix()}/{split}" for split in splits)
        raise UsageError(f"{directory.as_posix()}: a dataset of several splits; give one: {named}")
    return directory / str(splits[0])


def _saved_dataset(directory: Path) -> list[Path]:
    """Return the files of a dataset made by `save_to_disk`, in the order of its state."""
    data_files = _read_json(directory / "state.json").get("_data_files")
    names = [item.get("filename") for item in data_files] if isinstance(data_files, list) else []
    if not names:
        raise UsageError(f"{directory.as_posix()}/state.json: names no data files")
    return [directory / str(name) for name in names]


def _read_json(path: Path) -> dict[str, object]:
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise unreadable(path.as_posix(), error) from None
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{path.as_posix()}: not valid JSON: {error}") from None
    return value if isinstance(value, dict) else {}


def matches(pattern: str, found: FileList, walk: Walk) -> Iterator[tuple[str, Way]]:
    """Yield the paths that a pattern matches, sorted, and how each was reached.

    With `**`, which matches the files in directories too, directories are left out. Datasets of
    tokmill below the fixed start of the pattern are listed as ignored.
    """
    parts = pattern.split("/")
    fixed = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    root = "/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else ".")
    if ANY_DEPTH not in parts:
        yield from _by_level(pattern, Path(root).as_posix(), found)
    elif Path(root).is_dir():
        wanted = [part for part in parts[fixed:] if part]
        hidden = any(part.startswith(".") for part in parts[fixed:])
        start = Path(root).as_posix()
        n_before = 0 if start == "." else len(start.rstrip("/")) + 1
        for path, way in walk.below(start, hidden=hidden):
            if fits(path[n_before:].split("/"), wanted):
                yield path, way


def fits(names: list[str], parts: list[str]) -> bool:
    """Return whether names match the parts of a pattern; a leading dot must be in the pattern."""
    if not parts or not names:
        return not parts and not names
    if parts[0] != ANY_DEPTH:
        is_named = not names[0].startswith(".") or parts[0].startswith(".")
        return is_named and fnmatchcase(names[0], parts[0]) and fits(names[1:], parts[1:])
    n_seen = next((i for i, name in enumerate(names) if name.startswith(".")), len(names))
    if len(parts) == 1:
        return n_seen == len(names)
    return any(fits(names[i:], parts[1:]) for i in range(n_seen + 1))


def _by_level(pattern: str, root: str, found: FileList) -> Iterator[tuple[str, Way]]:
    """Yield the matches of a pattern without `**`."""
    own: set[str] = set()
    matched = glob.glob(pattern)  # noqa: PTH207  Path.glob wants relative ones
    for path in sorted({Path(match).as_posix() for match in matched}):
        dataset, way = _reached(path, root)
        if not dataset:
            yield path, way
        elif dataset not in own:
            own.add(dataset)
            found.ignore(dataset, Ignored.DATASET)


def _reached(path: str, root: str) -> tuple[str, Way]:
    """Return the tokmill dataset below `root` that holds a path, or '', and how it was reached."""
    way, dataset = Way.LISTED, ""
    while path not in (root, "", "/"):
        if os.path.islink(path):  # noqa: PTH114
            way = Way.LINKED
        if is_tokmill_dataset(path):
            dataset = path
        path = os.path.dirname(path)  # noqa: PTH120
    return dataset, way
