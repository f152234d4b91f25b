"""What a glob matches: not what stands in datasets that tokmill made, and through each link once.

`glob.glob` follows a link to a directory above itself forty levels deep, and two of them for ever.
"""

from __future__ import annotations

import glob
import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.sources.found import Found, Ignored, Way
from tokmill.sources.walk import Walk, is_tokmill_dataset

if TYPE_CHECKING:
    from collections.abc import Iterator

_ANY_DEPTH = "**"


def matches(pattern: str, found: Found, walk: Walk) -> Iterator[tuple[str, Way]]:
    """Yield the paths that a pattern matches, sorted, and how each was reached.

    With `**`, which matches the files in directories too, directories are not among them. Datasets
    of tokmill below the fixed beginning of the pattern are noted as ignored.
    """
    parts = pattern.split("/")
    fixed = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    root = "/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else ".")
    if _ANY_DEPTH not in parts:
        yield from _by_level(pattern, Path(root).as_posix(), found)
    elif Path(root).is_dir():
        wanted = [part for part in parts[fixed:] if part]
        hidden = any(part.startswith(".") for part in parts[fixed:])
        start = Path(root).as_posix()
        n_before = 0 if start == "." else len(start.rstrip("/")) + 1
        for path, way in walk.below(start, hidden=hidden):
            if _fits(path[n_before:].split("/"), wanted):
                yield path, way


def _fits(names: list[str], parts: list[str]) -> bool:
    """Return whether a path below the fixed beginning fits; a dot at a start must be named."""
    if not parts or not names:
        return not parts and not names
    if parts[0] != _ANY_DEPTH:
        is_named = not names[0].startswith(".") or parts[0].startswith(".")
        return is_named and fnmatchcase(names[0], parts[0]) and _fits(names[1:], parts[1:])
    n_seen = next((i for i, name in enumerate(names) if name.startswith(".")), len(names))
    if len(parts) == 1:
        return n_seen == len(names)
    return any(_fits(names[i:], parts[1:]) for i in range(n_seen + 1))


def _by_level(pattern: str, root: str, found: Found) -> Iterator[tuple[str, Way]]:
    """Yield the matches of a pattern that has as many levels as it has parts."""
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
    """Return the dataset of tokmill below `root` that a path is in, or '', and the way to it."""
    way, dataset = Way.LISTED, ""
    while path not in (root, "", "/"):
        if os.path.islink(path):  # noqa: PTH114
            way = Way.LINKED
        if is_tokmill_dataset(path):
            dataset = path
        path = os.path.dirname(path)  # noqa: PTH120
    return dataset, way
