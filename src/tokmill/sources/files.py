"""Find the files to read, and their order: of names, directories, globs and URLs.

Directories and stores are walked in the order of whole paths, and one set of rules says which of
what a walk reaches is read. Links are followed, but each directory only once: `glob.glob` follows a
link to a parent directory forty levels deep, and never ends with two of them. Datasets made by
tokmill are left out.
"""

from __future__ import annotations

import errno
import glob
import json
import os
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, NamedTuple

from tokmill.dataset.layout import PLAN, PLAN_BEGINNING
from tokmill.errors import StorageError, UsageError
from tokmill.opening import begins_with, read_named
from tokmill.sources.file_list import (
    ANY_DEPTH,
    JSON,
    TEXT,
    FileList,
    Ignored,
    Way,
    classify,
    endings,
    fits,
    is_listed,
    may_fit,
    sniff_json,
    sniff_records,
    unknown_ending,
)
from tokmill.sources.formats import cut, format_named
from tokmill.sources.hub import commit_of, is_hub
from tokmill.sources.slices import Slice, SourceFile
from tokmill.sources.streams import unreadable
from tokmill.urls import is_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tokmill.settings.schema import InputSettings
    from tokmill.stores.connections import Entry, Store

__all__ = ["Discovery", "Slice", "SourceFile", "cut", "discover"]

STDIN = "-"
_Key = tuple[str, int, int]
_EFFECTIVE = os.access in os.supports_effective_ids


class Discovery(NamedTuple):
    """The files to read, in order.

    `notes`: a line for each way in which paths are not read as their names say.
    `warnings`: about files named twice. `unmatched`: about settings that match nothing in the first
    records; they are said in any case.
    """

    files: list[SourceFile]
    notes: list[str]
    warnings: list[str]
    unmatched: list[str]


def discover(settings: InputSettings, commits: Mapping[str, str] | None = None) -> Discovery:
    """Find the files to read, in the order of `settings.paths`.

    A glob or a directory stands for its files, at any depth, sorted by path (as strings with
    forward slashes); URLs of object stores too. A directory made by `save_to_disk` keeps its own
    order. Hidden files in directories are skipped. Listed as ignored are: files with an unknown
    ending, Markdown (most are READMEs), texts that describe the records beside them, pipes, broken
    links and tokmill's own datasets. Links are followed; see `FileList` for files that are reached
    twice. A text file of JSON records is read as records. With a `settings.format` other than auto,
    every file is read as that format. A dataset of the Hub is read at the commit that `commits` has
    for its path, else at the current commit of its revision.

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
                search.add_objects(path)
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
    if settings.format == "auto":
        search.list.remove_descriptions()
    warnings = search.list.remove_repeated()
    return Discovery(search.list.files, search.list.notes(), warnings, [])


def _stdin(settings: InputSettings) -> SourceFile:
    data_format = "jsonl" if settings.format == "auto" else settings.format
    if format_named(data_format).holds == "rows":
        raise UsageError(f"-: {data_format} cannot be read from stdin; give a file")
    return SourceFile(STDIN, data_format, "", 0, 0, "")


class _Reached(NamedTuple):
    """What a walk came to: its names below the root, how, and why it is ignored, if it is."""

    names: tuple[str, ...]
    way: Way = Way.LISTED
    why: Ignored | None = None


class _Search:
    """Adds the files that paths stand for to a list; `forced`: the format of all, or "auto"."""

    def __init__(self, forced: str) -> None:
        self.list = FileList()
        self._forced = forced

    def add(self, path: str) -> None:
        """Add a file, or the files of a directory or of a glob."""
        wanted: list[str] = []
        if Path(path).is_dir():
            if _is_dataset(path):
                raise UsageError(f"{path}: a dataset that tokmill made, expected a corpus")
            root = Path(path).as_posix()
            nothing = f"{root}: no file ending in {endings()} (.gz, .zst)"
        elif glob.has_magic(path) and not Path(path).exists():
            fixed, wanted = _split_pattern(path)
            root = Path(fixed or ("/" if path.startswith("/") else ".")).as_posix()
            nothing = f"{path}: no file matches"
        else:
            self._add_file(Path(path).as_posix(), Way.NAMED)
            return
        reached = _Walk(wanted).below(root) if Path(root).is_dir() else iter(())
        if path.endswith("/") and ANY_DEPTH not in wanted:  # directories alone
            reached = (entry for entry in reached if entry.why or len(entry.names) > len(wanted))
        self._add_below(root, wanted, reached, nothing)

    def add_objects(self, url: str) -> None:
        """Add an object, or those below a folder or of a pattern, by the names in a listing.

        Of an object, a listing says the size and the stamp; only the heads of `.json` files and of
        plans are read.
        """
        from tokmill.stores.objects import located  # loads what few runs need
        from tokmill.stores.opening import open_store

        scheme, _, rest = url.partition("://")
        bucket, _, inside = rest.partition("/")
        if not bucket or glob.has_magic(bucket):
            raise UsageError(f"{url}: expected the name of a bucket, as in s3://bucket/name")
        if inside and not url.endswith("/"):
            store, name = located(url)
            if entry := store.entry(name):
                self._add_file(url, Way.NAMED, entry)
                return
        fixed, wanted = _split_pattern(rest) if glob.has_magic(rest) else (rest.rstrip("/"), [])
        root = f"{scheme}://{fixed}"
        store = open_store(root)
        entries = store.entries()
        nothing = (
            f"{url}: no object of that name, and none below it that ends in {endings()} (.gz, .zst)"
        )
        reached = _objects_below(store, entries, wanted)
        by_url = {f"{root}/{name}": entry for name, entry in entries.items()}
        self._add_below(root, wanted, reached, nothing, by_url)

    def _add_below(
        self,
        root: str,
        wanted: list[str],
        reached: Iterable[_Reached],
        nothing: str,
        entries: Mapping[str, Entry] | None = None,
    ) -> None:
        """Add what matches a pattern below `root`, in the order of the matches, or lies in a match.

        The parts of the pattern are `wanted`; none: all of it. With `**`, directories do not match.
        `nothing` is the message if no file is found, `entries` what a store says of its objects.
        """
        n_before, start = len(self.list.files), "" if root == "." else f"{root.rstrip('/')}/"
        matches: dict[str, list[tuple[str, bool, Way]]] = {}
        for names, way, why in reached:
            path = start + "/".join(names)
            match = names if ANY_DEPTH in wanted else names[: len(wanted)]
            if why is not None:
                self.list.ignore(path, why)
            elif fits(match, wanted):
                file = path, len(match) < len(names), way
                matches.setdefault("/".join(match), []).append(file)
        for name in sorted(matches):
            for path, is_inside, way in matches[name]:
                if is_inside and self._forced == "auto" and not is_listed(path):
                    self.list.ignore(path, Ignored.UNKNOWN)
                else:
                    self._add_file(path, way, (entries or {}).get(path))
        if len(self.list.files) == n_before:
            raise UsageError(nothing + "".join(f"; {line}" for line in self.list.notes()))

    def _add_file(self, path: str, way: Way, entry: Entry | None = None) -> None:
        """Add a file, or the object of an entry; its ending must be known, or the format named."""
        data_format, compression = classify(path)
        data_format = data_format if self._forced == "auto" else self._forced
        identity: tuple[object, ...] = (path,)
        if entry is not None:
            from tokmill.stores.objects import remember

            remember(path, entry)
            n_bytes, mtime_ns, stamp = entry.n_bytes, 0, entry.stamp
        else:
            stat = _stat(path, way)
            if isinstance(stat, Ignored):
                self.list.ignore(path, stat)
                return
            n_bytes, mtime_ns, stamp = stat.st_size, stat.st_mtime_ns, ""
            # On some mounts several files have one inode: size and time still distinguish most, and
            # reading a file twice is better than losing one. Inode 0 means "none".
            name = "" if stat.st_ino else os.path.realpath(path)
            identity = name, stat.st_dev, stat.st_ino, n_bytes, mtime_ns
        if not data_format:
            raise unknown_ending(path)
        if data_format == JSON:
            data_format = sniff_json(path, compression)
        elif data_format == TEXT and self._forced == "auto" and n_bytes:
            data_format = sniff_records(path, compression)
            if data_format != TEXT:
                self.list.holds_records(path)
        file = SourceFile(path, data_format, compression, n_bytes, mtime_ns, stamp)
        self.list.add(file, way, identity)


def _split_pattern(pattern: str) -> tuple[str, list[str]]:
    """Return the fixed start of a pattern, and the parts after it."""
    parts = pattern.split("/")
    n_fixed = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    return "/".join(parts[:n_fixed]), [part for part in parts[n_fixed:] if part]


def _objects_below(
    store: Store, entries: Mapping[str, Entry], wanted: list[str]
) -> Iterator[_Reached]:
    """Yield the objects below a folder, and each dataset of tokmill that holds some once."""
    plans = (name for name in entries if name.endswith(f"/{PLAN}") and entries[name].n_bytes)
    datasets = {
        name.removesuffix(f"/{PLAN}")
        for name in plans
        if store.read_range(name, 0, min(len(PLAN_BEGINNING), entries[name].n_bytes))
        == PLAN_BEGINNING
    }
    noted: set[str] = set()
    for name in entries:
        names = tuple(name.split("/"))
        folders = ("/".join(names[:i]) for i in range(1, len(names)))
        dataset = next((folder for folder in folders if folder in datasets), None)
        if dataset is None:
            if names[-1] and may_fit(names, wanted):  # '' marks an empty folder
                yield _Reached(names)
        elif dataset not in noted:
            noted.add(dataset)
            of_dataset = tuple(dataset.split("/"))
            if may_fit(of_dataset, wanted):
                yield _Reached(of_dataset, why=Ignored.DATASET)


def _stat(path: str, way: Way) -> os.stat_result | Ignored:
    """Return the status of a file that can be read, or why one that is not named is ignored.

    Raises:
        UsageError: a file that is named is not there, or no regular file.
        StorageError: it cannot be read.
    """
    try:
        stat = os.stat(path)  # noqa: PTH116  strings are what is at hand
        if not S_ISREG(stat.st_mode):
            if way is not Way.NAMED:
                return Ignored.SPECIAL
            raise UsageError(f"{path}: not a regular file: pipe it into standard input (-)")
        # Only asks the system: opening a million files on a network takes minutes.
        if not os.access(path, os.R_OK, effective_ids=_EFFECTIVE):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return stat
    except OSError as error:
        is_lost = error.errno in (errno.ENOENT, errno.ELOOP)
        if is_lost and way is not Way.NAMED and Path(path).is_symlink():
            return Ignored.NOWHERE
        if error.errno == errno.ENOENT:
            raise UsageError(f"{path}: no such file or directory") from None
        raise unreadable(path, error) from None


class _Walk:
    """Walks directories, into those alone that can hold what fits the parts of a pattern.

    A directory that several links lead to is entered once; a link to a parent directory is
    ignored.
    """

    def __init__(self, wanted: list[str]) -> None:
        self._wanted = wanted
        self._linked: set[tuple[_Key, int]] = set()

    def below(self, root: str) -> Iterator[_Reached]:
        """Yield all that is no directory, at any depth, sorted by path."""
        return self._below(root, _Reached(()), (_key(root),))

    def _below(
        self, directory: str, reached: _Reached, above: tuple[_Key, ...]
    ) -> Iterator[_Reached]:
        """Yield what is below one directory; sorts only its entries at a time.

        A directory sorts as its name with a slash, and every path in it begins with that: so the
        result is sorted by path. A directory made by `save_to_disk` keeps its own order.
        """
        names, way, _ = reached
        entries = _entries(directory)
        if ANY_DEPTH not in self._wanted and len(names) >= len(self._wanted):
            if "dataset_dict.json" in entries:
                names = (*names, _only_split(Path(directory)))
                directory = f"{directory}/{names[-1]}"
                entries = _entries(directory)
            if "state.json" in entries and "dataset_info.json" in entries:
                yield from (_Reached((*names, name), way) for name in _saved(Path(directory)))
                return
        for entry in sorted(entries.values(), key=_order):
            below = (*names, entry.name)
            if not may_fit(below, self._wanted):
                continue
            child = _Reached(below, Way.LINKED if entry.is_symlink() else way)
            if not _is(entry.is_dir):
                yield child
                continue
            # Down to a match a pattern bounds the depth, and each depth has another part of it.
            depth = 0 if ANY_DEPTH in self._wanted else min(len(below), len(self._wanted))
            if depth == len(below):
                above = ()
            if (why := self._why_not(entry, above, depth)) is not None:
                yield child._replace(why=why)
            else:
                yield from self._below(entry.path, child, (*above, _key(entry.path)))

    def _why_not(
        self, entry: os.DirEntry[str], above: tuple[_Key, ...], depth: int
    ) -> Ignored | None:
        """Return why not to go into a directory; a link is followed to each directory once.

        `depth`: of the part of the pattern that the directory fits.
        """
        if _is_dataset(entry.path):
            return Ignored.DATASET
        if not entry.is_symlink():
            return None
        key = _key(entry.path)
        is_again = key in above or (key, depth) in self._linked
        self._linked.add((key, depth))
        return Ignored.LOOP if is_again else None


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
    return begins_with(Path(directory) / "plan.json", PLAN_BEGINNING)


def _only_split(directory: Path) -> str:
    """Return the name of the only split that `save_to_disk` wrote into a directory."""
    splits = _read_json(directory / "dataset_dict.json").get("splits")
    if not isinstance(splits, list) or not splits:
        raise UsageError(f"{directory.as_posix()}/dataset_dict.json: names no splits")
    if len(splits) > 1:
        named = ", ".join(f"{directory.as_posix()}/{split}" for split in splits)
        raise UsageError(f"{directory.as_posix()}: a dataset of several splits; give one: {named}")
    return str(splits[0])


def _saved(directory: Path) -> list[str]:
    """Return the files of a dataset made by `save_to_disk`, in the order of its state."""
    data_files = _read_json(directory / "state.json").get("_data_files")
    names = [item.get("filename") for item in data_files] if isinstance(data_files, list) else []
    if not names:
        raise UsageError(f"{directory.as_posix()}/state.json: names no data files")
    return [str(name) for name in names]


def _read_json(path: Path) -> dict[str, object]:
    try:
        value = json.loads(read_named(path))
    except OSError as error:
        raise unreadable(path.as_posix(), error) from None
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{path.as_posix()}: not valid JSON: {error}") from None
    return value if isinstance(value, dict) else {}
