"""Find the files to read, and their order: of names, directories, globs and URLs.

Links are followed, but each directory only once: `glob.glob` follows a link to a parent directory
forty levels deep, and never ends with two of them. Datasets made by tokmill are left out.
"""

from __future__ import annotations

import errno
import glob
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tokmill.dataset.plan_file import begins_as_plan
from tokmill.errors import StorageError, UsageError
from tokmill.sources.file_list import (
    ANY_DEPTH,
    FileList,
    Ignored,
    Way,
    classify,
    describe,
    endings,
    fits,
    is_listed,
    unknown_ending,
)
from tokmill.sources.formats import cut, format_named
from tokmill.sources.hub import commit_of, is_hub
from tokmill.sources.object_list import add_objects
from tokmill.sources.slices import Slice, SourceFile
from tokmill.sources.streams import unreadable
from tokmill.urls import is_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tokmill.settings.schema import InputSettings

__all__ = ["Discovery", "Slice", "SourceFile", "cut", "discover"]

STDIN = "-"
_Key = tuple[str, int, int]


class Discovery(NamedTuple):
    """The files to read, in order.

    `ignored`: a line for each reason to ignore paths. `warnings`: about files named twice.
    """

    files: list[SourceFile]
    ignored: list[str]
    warnings: list[str]


def discover(settings: InputSettings, commits: Mapping[str, str] | None = None) -> Discovery:
    """Find the files to read, in the order of `settings.paths`.

    A glob or a directory stands for its files, at any depth, sorted by path (as strings with
    forward slashes); URLs of object stores too. A directory made by `save_to_disk` keeps its own
    order. Hidden files in directories are skipped. Listed as ignored are: files with an unknown
    ending, Markdown (most are READMEs), pipes, broken links and tokmill's own datasets. Links are
    followed; see `FileList` for files that are reached twice. With a `settings.format` other than
    auto, every file is read as that format. A dataset of the Hub is read at the commit that
    `commits` has for its path, else at the current commit of its revision.

    Raises:
        UsageError: no path is given, nothing is found, or an ending belongs to no format.
        StorageError: a file or directory cannot be read.
    """
    if not settings.paths:
        raise UsageError("no input: expected a file, a directory, a glob, hf:NAME or - for stdin")
    if "" in settings.paths:
        raise UsageError("an input is an empty name: expected a path (is a variable not set?)")
    if settings.paths.count(STDIN) > 1:
        raise UsageError("-: standard input is named twice, and can be read once")
    search = _Search(settings.format)
    for path in settings.paths:
        try:
            if is_store(path):
                add_objects(path, settings.format, search.list)
            elif is_hub(path):
                commit = (commits or {}).get(path)
                if commit is None:
                    commit = commit_of(path)
                file = SourceFile(path, "hub", "", 0, 0, commit)
                search.list.add(file, Way.NAMED, (path,))
            elif path == STDIN:
                search.list.add(_stdin(settings), Way.NAMED, (path,))
            else:
                search.add(path)
        except PermissionError as error:
            raise unreadable(path, error) from None
    warnings = search.list.remove_repeated()
    return Discovery(search.list.files, search.list.notes(), warnings)


def _stdin(settings: InputSettings) -> SourceFile:
    data_format = "jsonl" if settings.format == "auto" else settings.format
    if format_named(data_format).holds == "rows":
        raise UsageError(f"-: {data_format} cannot be read from stdin; give a file")
    return SourceFile(STDIN, data_format, "", 0, 0, "")


class _Search:
    """Adds the files that paths stand for to a list; `forced`: the format of all, or "auto"."""

    def __init__(self, forced: str) -> None:
        self.list = FileList()
        self._forced = forced
        self._linked: set[_Key] = set()

    def add(self, path: str) -> None:
        """Add a file, or the files of a directory or of a glob."""
        if Path(path).is_dir():
            if _is_dataset(path):
                raise UsageError(f"{path}: a dataset that tokmill made, expected a corpus")
            self._add_directory(Path(path), Way.LISTED)
        elif glob.has_magic(path) and not Path(path).exists():
            self._add_glob(path)
        else:
            self._add_file(Path(path), Way.NAMED)

    def _add_file(self, path: Path, way: Way) -> None:
        """Add a file that is named or matched; its ending must be known."""
        data_format, compression = classify(path.name)
        if not data_format and self._forced == "auto":
            if not path.exists():
                raise UsageError(f"{path.as_posix()}: no such file or directory")
            raise unknown_ending(path.as_posix())
        self._describe(path, data_format, compression, way)

    def _describe(
        self, path: Path | os.DirEntry[str], data_format: str, compression: str, way: Way
    ) -> None:
        taken = data_format if self._forced == "auto" else self._forced
        file, identity = describe(path, taken, compression)
        self.list.add(file, way, identity)

    def _add_directory(self, directory: Path, way: Way) -> None:
        """Add the files of a directory whose ending is known; ignore the others."""
        n_before = len(self.list.files)
        for entry, reached in self._below(directory.as_posix(), way):
            name = entry.name
            if isinstance(entry, os.DirEntry) and not _is(entry.is_file):
                self._ignore_special(entry.path)
            elif self._forced == "auto" and not is_listed(name):
                self.list.ignore(_path(entry), Ignored.UNKNOWN)
            else:
                self._describe(entry, *classify(name), reached)
        if len(self.list.files) == n_before:
            ignored = "".join(f"; {line}" for line in self.list.notes())
            message = f"{directory.as_posix()}: no file ending in {endings()} (.gz, .zst)"
            raise UsageError(f"{message}{ignored}")

    def _ignore_special(self, path: str) -> None:
        is_lost = os.path.islink(path) and not os.path.exists(path)  # noqa: PTH110, PTH114
        why = Ignored.NOWHERE if is_lost else Ignored.SPECIAL
        self.list.ignore(path.removeprefix("./"), why)

    def _add_glob(self, pattern: str) -> None:
        """Add the files and directories that a pattern matches."""
        n_before, n_own = len(self.list.files), self.list.n_ignored(Ignored.DATASET)
        for path, way in self._matches(pattern):
            if Path(path).is_dir():
                self._add_directory(Path(path), way)
            elif not os.path.isfile(path):  # noqa: PTH113  Path.is_file raises for a link in a circle
                self._ignore_special(path)
            else:
                self._add_file(Path(path), way)
        if len(self.list.files) == n_before:
            is_own = self.list.n_ignored(Ignored.DATASET) > n_own
            why = "; what a dataset of tokmill holds is not matched" if is_own else ""
            raise UsageError(f"{pattern}: no file matches{why}")

    def _matches(self, pattern: str) -> Iterator[tuple[str, Way]]:
        """Yield the paths that a pattern matches, sorted, and how each was reached.

        With `**`, which matches the files in directories too, directories are left out. Datasets
        of tokmill below the fixed start of the pattern are listed as ignored.
        """
        parts = pattern.split("/")
        fixed = next(i for i, part in enumerate(parts) if glob.has_magic(part))
        root = Path("/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else ".")).as_posix()
        if ANY_DEPTH not in parts:
            yield from self._by_level(pattern, root)
        elif Path(root).is_dir():
            wanted = [part for part in parts[fixed:] if part]
            hidden = any(part.startswith(".") for part in wanted)
            n_before = 0 if root == "." else len(root.rstrip("/")) + 1
            for entry, way in self._below(root, Way.LISTED, hidden=hidden, as_datasets=False):
                if fits(_path(entry)[n_before:].split("/"), wanted):
                    yield _path(entry), way

    def _by_level(self, pattern: str, root: str) -> Iterator[tuple[str, Way]]:
        """Yield the matches of a pattern without `**`."""
        own: set[str] = set()
        matched = glob.glob(pattern)  # noqa: PTH207  Path.glob wants relative ones
        for path in sorted({Path(match).as_posix() for match in matched}):
            above = [path, *(parent.as_posix() for parent in Path(path).parents)]
            below_root = above[: above.index(root)] if root in above else above
            way = Way.LINKED if any(map(os.path.islink, below_root)) else Way.LISTED
            dataset = next(filter(_is_dataset, reversed(below_root)), None)
            if dataset is None:
                yield path, way
            elif dataset not in own:
                own.add(dataset)
                self.list.ignore(dataset, Ignored.DATASET)

    def _below(
        self, directory: str, way: Way, *, hidden: bool = False, as_datasets: bool = True
    ) -> Iterator[tuple[Path | os.DirEntry[str], Way]]:
        """Yield all that is no directory, at any depth, sorted by path, and how it was reached.

        A directory that several links lead to is entered once; a link to a parent directory is
        ignored. `as_datasets`: of a directory made by `save_to_disk`, its data files in its order.
        """
        self._linked = set()
        options = (hidden, as_datasets)
        return self._entries_below(directory, way, (_key(directory),), options)

    def _entries_below(
        self, directory: str, way: Way, above: tuple[_Key, ...], options: tuple[bool, bool]
    ) -> Iterator[tuple[Path | os.DirEntry[str], Way]]:
        """Yield what is below one directory; sorts only its entries at a time.

        A directory sorts as its name with a slash, and every path in it begins with that: so the
        result is sorted by path.
        """
        hidden, as_datasets = options
        entries = _entries(directory)
        if as_datasets and "dataset_dict.json" in entries:
            directory = _only_split(Path(directory)).as_posix()
            entries = _entries(directory)
        if as_datasets and "state.json" in entries and "dataset_info.json" in entries:
            yield from ((path, way) for path in _saved_dataset(Path(directory)))
            return
        for entry in sorted(entries.values(), key=_order):
            if entry.name.startswith(".") and not hidden:
                continue
            reached = Way.LINKED if entry.is_symlink() else way
            if not _is(entry.is_dir):
                yield entry, reached
            elif self._may_enter(entry, above):
                inside = (*above, _key(entry.path))
                yield from self._entries_below(entry.path, reached, inside, options)

    def _may_enter(self, entry: os.DirEntry[str], above: tuple[_Key, ...]) -> bool:
        """Return whether to go into a directory; a link is followed to each directory once."""
        why = Ignored.DATASET if _is_dataset(entry.path) else None
        if why is None and entry.is_symlink():
            key = _key(entry.path)
            why = Ignored.LOOP if key in above or key in self._linked else None
            self._linked.add(key)
        if why is not None:
            self.list.ignore(_path(entry), why)
        return why is None


def _path(entry: Path | os.DirEntry[str]) -> str:
    """Return the path of an entry as `Path` writes it."""
    return entry.as_posix() if isinstance(entry, Path) else entry.path.removeprefix("./")


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


def _is_dataset(directory: str) -> bool:
    """Return whether a directory is the output of a run, which may be among its own inputs."""
    return begins_as_plan(Path(directory) / "plan.json")


def _only_split(directory: Path) -> Path:
    """Return the directory of the only split that `save_to_disk` wrote into a directory."""
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
