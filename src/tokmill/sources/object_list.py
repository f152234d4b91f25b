"""Find the objects of a store that a URL stands for: one, those below a folder, or a pattern's."""

from __future__ import annotations

import glob
from typing import TYPE_CHECKING

from tokmill.dataset.layout import PLAN
from tokmill.dataset.plan_file import is_plan
from tokmill.errors import UsageError
from tokmill.sources.file_list import (
    ANY_DEPTH,
    JSON,
    Ignored,
    Way,
    classify,
    endings,
    fits,
    is_listed,
    sniff_json,
    unknown_ending,
)
from tokmill.sources.slices import SourceFile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokmill.place.stores import Entry, Store
    from tokmill.sources.file_list import FileList

_HEAD_BYTES = 64
"""More than the first bytes by which a plan is recognised."""


def add_objects(url: str, forced: str, file_list: FileList) -> None:
    """Add the objects that a URL names to the list, by the rules of `discover`.

    `forced`: the format of all files, or "auto". What a listing says of an object is its size and
    its stamp; only the heads of `.json` files and of plans are read.

    Raises:
        UsageError: there are none, an ending belongs to no format, or a package is missing.
        StorageError: the store cannot be read.
    """
    from tokmill.place.objects import located  # loads what few runs need

    bucket, _, inside = url.partition("://")[2].partition("/")
    if not bucket or glob.has_magic(bucket):
        raise UsageError(f"{url}: expected the name of a bucket, as in s3://bucket/name")
    if inside and not url.endswith("/"):
        store, name = located(url)
        if entry := store.entry(name):
            _add_named(url, entry, forced, Way.NAMED, file_list)
            return
    n_before = len(file_list.files)
    if glob.has_magic(url):
        _add_matches(url, forced, file_list)
    else:
        root = url.rstrip("/")
        entries = _store(root).entries()
        _add_all(root, entries, {"": list(entries)}, _datasets(root, entries), forced, file_list)
    if len(file_list.files) == n_before:
        notes = "".join(f"; {line}" for line in file_list.notes())
        raise UsageError(
            f"{url}: no object of that name, and none below it that ends in {endings()} "
            f"(.gz, .zst){notes}"
        )


def _add_matches(url: str, forced: str, file_list: FileList) -> None:
    """Add the objects and folders that a pattern matches; with `**`, objects alone."""
    scheme, _, rest = url.partition("://")
    parts = rest.rstrip("/").split("/")
    n_fixed = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    root, wanted = f"{scheme}://{'/'.join(parts[:n_fixed])}", parts[n_fixed:]
    entries = _store(root).entries()
    matched: dict[str, list[str]] = {}
    for name in entries:
        names = name.split("/")
        taken = names if ANY_DEPTH in wanted else names[: len(wanted)]
        if fits(taken, wanted):
            matched.setdefault("/".join(taken), []).append(name)
    _add_all(root, entries, matched, _datasets(root, entries) - {""}, forced, file_list)


def _add_all(
    root: str,
    entries: dict[str, Entry],
    matched: dict[str, list[str]],
    datasets: set[str],
    forced: str,
    file_list: FileList,
) -> None:
    """Add objects by name below `root`: each that is matched itself, or lies below a match."""
    noted: set[str] = set()
    for match in sorted(matched):
        for name in matched[match]:
            dataset = next((f for f in _folders(name) if f in datasets), None)
            if dataset is None and name == match:
                _add_named(f"{root}/{name}", entries[name], forced, Way.LISTED, file_list)
            elif dataset is None:
                _add_below(f"{root}/{name}", name[len(match) :], entries[name], forced, file_list)
            elif dataset not in noted:
                noted.add(dataset)
                file_list.ignore(f"{root}/{dataset}".rstrip("/"), Ignored.DATASET)


def _add_below(url: str, inside: str, entry: Entry, forced: str, file_list: FileList) -> None:
    """Add an object in a folder, unless its name in it is hidden, or of unknown ending."""
    parts = inside.lstrip("/").split("/")
    if any(part.startswith(".") for part in parts) or not parts[-1]:  # '' marks an empty folder
        return
    if forced == "auto" and not is_listed(parts[-1]):
        file_list.ignore(url, Ignored.UNKNOWN)
    else:
        _add_named(url, entry, forced, Way.LISTED, file_list)


def _add_named(url: str, entry: Entry, forced: str, way: Way, file_list: FileList) -> None:
    from tokmill.place.objects import remember

    data_format, compression = classify(url)
    data_format = data_format if forced == "auto" else forced
    if not data_format:
        raise unknown_ending(url)
    remember(url, entry)
    if data_format == JSON:
        data_format = sniff_json(url, compression)
    file_list.add(
        SourceFile(url, data_format, compression, entry.n_bytes, 0, entry.stamp), way, (url,)
    )


def _store(url: str) -> Store:
    from tokmill.place.stores import open_store

    return open_store(url)


def _folders(name: str) -> Iterable[str]:
    """Yield the folders that an object lies in, the outermost first, which is ''."""
    parts = name.split("/")
    return ("/".join(parts[:i]) for i in range(len(parts)))


def _datasets(root: str, entries: dict[str, Entry]) -> set[str]:
    """Return the folders that are datasets of tokmill."""
    store = _store(root)
    plans = (name for name in entries if f"/{name}".endswith(f"/{PLAN}") and entries[name].n_bytes)
    return {
        name.removesuffix(PLAN).rstrip("/")
        for name in plans
        if is_plan(store.read_range(name, 0, min(_HEAD_BYTES, entries[name].n_bytes)))
    }
