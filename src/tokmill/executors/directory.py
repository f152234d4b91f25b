"""What may stand in an output directory, and what is removed from it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tokmill.errors import StateError
from tokmill.shards.layout import MANIFEST, PARTS, PLAN, REJECTS, SHARD_FILE
from tokmill.storage import remove_temporaries, storage_errors

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tokmill.sources.files import SourceFile


def sweep(directory: Path) -> None:
    """Remove what stopped attempts left under temporary names."""
    for place in (directory, directory / PARTS, directory / REJECTS):
        remove_temporaries(place)


def refuse_stdin(files: Iterable[SourceFile], directory: Path) -> None:
    """Refuse to continue a run whose input cannot be told from another one; raises `StateError`."""
    if any(file.path == "-" for file in files):
        raise StateError(
            f"{directory}: holds a run already, and standard input cannot be continued: "
            "choose another --output, or run with --overwrite to start anew"
        )


def refuse_foreign(directory: Path) -> None:
    """Refuse to write among files that no plan explains; raises `StateError`."""
    foreign = _visible_names(directory)
    if foreign:
        raise StateError(
            f"{directory}: holds files but no plan of a run ({foreign[0]}, …): "
            "choose an empty or new directory"
        )


def _visible_names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))


def clear(directory: Path) -> None:
    """Remove a dataset's files from a directory that holds one.

    The manifest and the records go first: stopped in between, they must not vouch for what is gone.

    Raises:
        StateError: it holds files of others.
    """
    if not (directory / PLAN).exists():
        return
    own = {MANIFEST, PLAN, PARTS, REJECTS}
    foreign = [n for n in _visible_names(directory) if n not in own and not SHARD_FILE.fullmatch(n)]
    if foreign:
        raise StateError(
            f"{directory}: holds more than the dataset to overwrite ({foreign[0]}, …): "
            "move that away, or choose another --output"
        )
    with storage_errors(directory):
        (directory / MANIFEST).unlink(missing_ok=True)
        for name in (PARTS, REJECTS):
            _remove_folder(directory / name)
        for path in directory.iterdir():
            if SHARD_FILE.fullmatch(path.name):
                path.unlink()
        (directory / PLAN).unlink()


def _remove_folder(folder: Path) -> None:
    if folder.is_dir():
        shutil.rmtree(folder)
    else:
        folder.unlink(missing_ok=True)


def is_unstarted(directory: Path) -> bool:
    """Say whether a directory holds a plan of which nothing is committed yet."""
    return (directory / PLAN).exists() and not any((directory / PARTS).glob("*.json"))
