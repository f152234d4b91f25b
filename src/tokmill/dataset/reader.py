"""Read a finished dataset: its manifest, its shards by memory map, a document by number."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.checksum import manifest_sha256
from tokmill.dataset.layout import DATASET_FILE, MANIFEST, PLAN, SIDECARS, check_format_version
from tokmill.dataset.manifest_shape import shape_problem
from tokmill.dataset.mapped import map_file
from tokmill.dataset.sidecars import open_index
from tokmill.errors import StateError, UsageError, VerifyError
from tokmill.opening import begins_with, open_regular
from tokmill.storage import read_errors, storage_errors
from tokmill.urls import refuse_store
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from tokmill.dataset.place import Place


@dataclass(frozen=True, slots=True)
class Shard:
    """One `.bin`, mapped read-only, with its index and sidecars.

    `tokens`: (n_tokens,) uint16 or uint32. `lengths`: (n_documents,) int32 in tokens, `offsets`:
    (n_documents,) int64 in bytes. `mask`: (n_tokens,) uint8, 1 for a token that is a target; None
    for pretraining. `weights`: (n_tokens,) float32; None in a dataset without them.
    """

    name: str
    split: str
    tokens: npt.NDArray[np.unsignedinteger]
    lengths: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    mask: npt.NDArray[np.uint8] | None = None
    weights: npt.NDArray[np.float32] | None = None

    @property
    def sidecars(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays beside the tokens, by the ending of their files."""
        bodies = {"mask": self.mask, "weight": self.weights}
        return {ending: body for ending, body in bodies.items() if body is not None}

    def span(self, i: int) -> slice:
        """Return the span of document `i` of the shard in `tokens`, `mask` and `weights`."""
        start = int(self.offsets[i]) // self.tokens.itemsize
        return slice(start, start + int(self.lengths[i]))

    def document(self, i: int) -> npt.NDArray[np.unsignedinteger]:
        """Return the ids of document `i` of the shard, eos included."""
        return self.tokens[self.span(i)]

    def sample_mask(self, i: int) -> npt.NDArray[np.uint8] | None:
        """Return the mask of document `i` of the shard; None for pretraining."""
        return None if self.mask is None else self.mask[self.span(i)]


def read_manifest(directory: Path, *, follow_links: bool = True) -> dict[str, Any]:
    """Read the manifest of a finished dataset.

    Raises:
        UsageError: there is no dataset.
        StateError: the run is not finished, or the format is newer than this reader.
        VerifyError: the manifest is damaged, or is a link and `follow_links` is not set.
        StorageError: it cannot be read.
    """
    path = directory / MANIFEST
    if not os.path.lexists(path):
        refuse_store(directory)
        problem = f"no {MANIFEST} there" if directory.is_dir() else "no such directory"
        raise _no_manifest(directory, problem, is_planned=(directory / PLAN).exists())
    if path.is_symlink() and not follow_links:
        raise VerifyError(f"{path}: a link, not a file of the dataset")
    with storage_errors(path), open_regular(path, follow_links=follow_links) as file:
        return _parsed(file.read(), path)


MANIFEST_BEGINNING = b'{\n"config":'
"""The first bytes of every manifest."""


def surrounding_dataset(path: Path) -> Path | None:
    """Return the finished dataset inside which a path is: what else is there breaks `verify`."""
    parents = path.absolute().resolve().parents
    return next((p for p in parents if begins_with(p / MANIFEST, MANIFEST_BEGINNING)), None)


def manifest_in(place: Place) -> dict[str, Any]:
    """Return the manifest of a finished dataset in any place; raises as `read_manifest` does."""
    try:
        content = place.read(MANIFEST)
    except FileNotFoundError:
        is_planned = bool(place.stamp(PLAN))
        raise _no_manifest(place.where, f"no {MANIFEST} there", is_planned=is_planned) from None
    return _parsed(content, f"{place.where}/{MANIFEST}")


def _no_manifest(where: Path | str, problem: str, *, is_planned: bool) -> StateError | UsageError:
    """Return the error of a place without a manifest; `is_planned`: it has the plan of a run."""
    if is_planned:
        return StateError(
            f"{where}: its run is not finished (no {MANIFEST}): run the same command again to "
            "continue it"
        )
    return UsageError(f"{where}: not a tokmill dataset: {problem}: name the output of a run")


def _parsed(content: bytes, where: Path | str) -> dict[str, Any]:
    try:
        manifest = json.loads(content, parse_constant=_refuse_constant)
        version = manifest["format_version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise VerifyError(f"{where}: damaged manifest: {error}") from None
    check_format_version(version, where)
    return dict(manifest)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def read_intact_manifest(directory: Path) -> dict[str, Any]:
    """Read the manifest of a finished dataset, and check that it has not been changed.

    Raises:
        TokmillError: see `read_manifest`; also VerifyError: its own sha256 does not match.
    """
    manifest = read_manifest(directory)
    if not is_intact(manifest):
        raise VerifyError(
            f"{directory / MANIFEST}: its own sha256 does not match: it was changed; "
            "see tokmill verify"
        )
    check_complete(manifest, directory)
    return manifest


def is_intact(manifest: dict[str, Any]) -> bool:
    """Return whether a manifest has the sha256 that it names."""
    try:
        return bool(manifest.get("sha256") == manifest_sha256(manifest))
    except RecursionError:  # nested too deeply to be written as JSON
        return False


def check_complete(manifest: dict[str, Any], directory: Path) -> None:
    """Check that a manifest has all keys that a reader needs; raises `VerifyError`."""
    if problem := shape_problem(manifest):
        raise VerifyError(f"{directory / MANIFEST}: damaged manifest: {problem}")


def sidecars_of(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the endings of the sidecars of every `.bin` of a dataset."""
    if "mask" not in manifest:
        return ()
    return ("mask", "weight") if manifest["config"]["sft"]["weights"] == "file" else ("mask",)


def open_shard(directory: Path, manifest: dict[str, Any], entry: Mapping[str, Any]) -> Shard:
    """Return the shard of a row of the manifest.

    Raises:
        VerifyError: a file is missing, or differs from the manifest: another number of documents or
            tokens, or tokens of another size; or the row does not name a shard.
        StorageError: a file cannot be read, or too many files are open.
    """
    name = entry["name"]
    if not DATASET_FILE.fullmatch(f"{name}.bin"):
        raise VerifyError(f"{directory / MANIFEST}: {name!r} is not the name of a shard")
    dtype = np.dtype(manifest["dtype"]).newbyteorder("<")
    kinds: dict[str, np.dtype[Any]] = {"bin": dtype}
    kinds |= {ending: SIDECARS[ending] for ending in sidecars_of(manifest)}
    lengths, offsets = open_index(directory / f"{name}.idx", entry["documents"], dtype.itemsize)
    bodies = {}
    for ending, kind in kinds.items():
        path = directory / f"{name}.{ending}"
        with read_errors(path):
            bodies[ending] = map_file(path, kind)
        if len(bodies[ending]) != entry["tokens"]:
            raise VerifyError(
                f"{path}: {plural(len(bodies[ending]), 'token')}, the manifest says "
                f"{entry['tokens']:,}; see tokmill verify"
            )
    mask, weights = bodies.get("mask"), bodies.get("weight")
    return Shard(name, entry["split"], bodies["bin"], lengths, offsets, mask, weights)
