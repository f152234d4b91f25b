"""Where an import may write: a new directory, or one that an earlier import wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.dataset.layout import LOCK_NAME, MANIFEST, PLAN
from tokmill.dataset.reader import read_intact_manifest
from tokmill.errors import StateError
from tokmill.trainers.private_directory import check_replaceable

if TYPE_CHECKING:
    from collections.abc import Iterable, Set
    from pathlib import Path

ENGINE = "import"
"""Name of the engine in plan and manifest of an imported dataset."""


def check_output(output: Path, *, overwrite: bool) -> None:
    """Check that an import may write to `output`: no dataset but an imported one is replaced.

    Raises:
        StateError: it may not.
        TokmillError: the manifest of what stands there cannot be read.
    """
    check_replaceable(output, "an imported dataset", _imported_files, overwrite=overwrite)
    for parent in output.absolute().resolve().parents:
        if (parent / MANIFEST).is_file() and (parent / PLAN).is_file():
            raise StateError(f"{output}: is inside the dataset {parent}: name another directory")


def check_sources(paths: Iterable[Path], output: Path) -> None:
    """Check that no source would be replaced by the dataset that is made of it."""
    place = output.absolute().resolve()
    for path in paths:
        if place in path.absolute().resolve().parents:
            raise StateError(f"{path}: is inside {output}: name another output")


def _imported_files(output: Path) -> Set[str] | None:
    """Return the files of an imported dataset; None if `output` is none."""
    if not (output / MANIFEST).is_file():
        return None
    manifest = read_intact_manifest(output)
    if manifest["engine"]["name"] != ENGINE:
        return None
    return {MANIFEST, LOCK_NAME, *(file["name"] for file in manifest["files"])}
