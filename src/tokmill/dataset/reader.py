"""Reads a finished dataset: its manifest, and any document by number. NumPy and nothing else."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.canonical import json_chunks, manifest_sha256
from tokmill.dataset.idx_file import read_index
from tokmill.dataset.layout import DATASET_FILE, MANIFEST, PLAN, SIDECARS, check_format_version
from tokmill.dataset.manifest_shape import shape_problem
from tokmill.errors import StateError, StorageError, UsageError, VerifyError
from tokmill.storage import open_regular, storage_errors
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Shard:
    """One `.bin`, mapped read-only, with its index and sidecars.

    `tokens`: (n_tokens,) uint16 or uint32. `lengths`: (n_documents,) int32 in tokens, `offsets`:
    (n_documents,) int64 in bytes. `mask`: (n_tokens,) uint8, 1 for a token that is a target; None
    for pretraining. `weights`: (n_tokens,) float32; None where none are kept.
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
        """Give what stands beside the tokens, by the ending of its file."""
        bodies = {"mask": self.mask, "weight": self.weights}
        return {ending: body for ending, body in bodies.items() if body is not None}

    def span(self, i: int) -> slice:
        """Give where document `i` of the shard stands in `tokens`, `mask` and `weights`."""
        start = int(self.offsets[i]) // self.tokens.itemsize
        return slice(start, start + int(self.lengths[i]))

    def document(self, i: int) -> npt.NDArray[np.unsignedinteger]:
        """Give document `i` of the shard, eos included."""
        return self.tokens[self.span(i)]

    def sample_mask(self, i: int) -> npt.NDArray[np.uint8] | None:
        """Give the mask of document `i` of the shard; None for pretraining."""
        return None if self.mask is None else self.mask[self.span(i)]


def read_manifest(directory: Path, *, follow_links: bool = True) -> dict[str, Any]:
    """Read the manifest of a finished dataset.

    Raises:
        UsageError: there is no dataset.
        StateError: the run that writes it is not finished, or the format is newer than this reader.
        VerifyError: the manifest is damaged, or a link that is not to be followed.
        StorageError: it cannot be read.
    """
    path = directory / MANIFEST
    if not os.path.lexists(path):
        if (directory / PLAN).exists():
            raise StateError(
                f"{directory}: its run is not finished (no {MANIFEST}): "
                "run the same command again to continue it"
            )
        raise UsageError(f"{directory}: not a tokmill dataset: no {MANIFEST} there")
    if path.is_symlink() and not follow_links:
        raise VerifyError(f"{path}: a link, not a file of the dataset")
    try:
        with storage_errors(path), open_regular(path, follow_links=follow_links) as file:
            text = file.read().decode()  # the bytes are let go: a manifest may be large
        manifest = json.loads(text, parse_constant=_refuse_constant)
        version = manifest["format_version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise VerifyError(f"{path}: damaged manifest: {error}") from None
    check_format_version(version, path)
    return dict(manifest)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def read_intact_manifest(directory: Path) -> dict[str, Any]:
    """Read the manifest of a finished dataset that nobody has changed since.

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
    """Return whether a manifest's own sum is that of what it says."""
    try:
        return bool(manifest.get("sha256") == manifest_sha256(manifest))
    except RecursionError:  # what can be read can be nested too deeply to be written
        return False


def is_canonical(directory: Path, manifest: dict[str, Any]) -> bool:
    """Return whether the bytes of a manifest's file are those that a run writes for what it says.

    Other spellings of the same values (blanks, escapes, keys twice) are not. Holds about 1 MiB.
    """
    path = directory / MANIFEST
    with storage_errors(path), open_regular(path, follow_links=True) as file:
        chunks = json_chunks(manifest)
        return all(file.read(len(chunk)) == chunk for chunk in chunks) and not file.read(1)


def check_complete(manifest: dict[str, Any], directory: Path) -> None:
    """Make sure that a manifest has what reading documents takes; raises `VerifyError`."""
    if problem := shape_problem(manifest):
        raise VerifyError(f"{directory / MANIFEST}: damaged manifest: {problem}")


def open_shards(directory: Path, manifest: dict[str, Any], split: str = "") -> Iterator[Shard]:
    """Map the shards of a split, or of all, in the order of the dataset.

    Raises:
        VerifyError: a shard's file is missing, its index is broken or of another dtype, or a
            sidecar is not as long as its tokens.
    """
    for entry in manifest["shards"]:
        if split in ("", entry["split"]):
            yield open_shard(directory, manifest, entry["name"], entry["split"])


def sidecars_of(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Give the endings of what stands beside every `.bin` of a dataset."""
    if "mask" not in manifest:
        return ()
    return ("mask", "weight") if manifest["config"]["sft"]["weights"] == "file" else ("mask",)


def open_shard(directory: Path, manifest: dict[str, Any], name: str, split: str) -> Shard:
    """Map one shard by its name, which leads nowhere else; see `open_shards`."""
    if not DATASET_FILE.fullmatch(f"{name}.bin"):
        raise VerifyError(f"{directory / MANIFEST}: {name!r} is not the name of a shard")
    dtype = np.dtype(manifest["dtype"]).newbyteorder("<")
    path = directory / f"{name}.bin"
    try:
        tokens = np.memmap(path, dtype=dtype, mode="r")
        lengths, offsets, item_bytes = read_index(path.with_suffix(".idx"))
        sidecars = {
            ending: np.memmap(path.with_suffix(f".{ending}"), dtype=SIDECARS[ending], mode="r")
            for ending in sidecars_of(manifest)
        }
    except PermissionError as error:
        raise StorageError(f"{path}: {str(error.strerror).lower()}") from None
    except (OSError, ValueError) as error:
        raise VerifyError(f"{path}: {error}") from None
    if item_bytes != dtype.itemsize:
        raise VerifyError(
            f"{path}: index says {plural(item_bytes, 'byte')} per token, manifest {dtype.name}"
        )
    for ending, body in sidecars.items():
        if len(body) != len(tokens):
            raise VerifyError(
                f"{path}: {plural(len(tokens), 'token')}, but {len(body):,} in .{ending}"
            )
    mask, weights = sidecars.get("mask"), sidecars.get("weight")
    return Shard(name, split, tokens, lengths, offsets, mask, weights)


def find_document(directory: Path, manifest: dict[str, Any], number: int) -> tuple[Shard, int]:
    """Give the shard that holds document `number` of the dataset (from 0), and its place there.

    Raises:
        UsageError: there is no such document.
        VerifyError: see `open_shards`; also, the shard has other documents than the manifest says.
    """
    first = 0
    for entry in manifest["shards"]:
        if first <= number < first + entry["documents"]:
            shard = open_shard(directory, manifest, entry["name"], entry["split"])
            if len(shard.lengths) != entry["documents"]:
                raise VerifyError(
                    f"{directory / entry['name']}.idx: {plural(len(shard.lengths), 'document')}, "
                    f"the manifest says {entry['documents']}"
                )
            return shard, number - first
        first += entry["documents"]
    raise UsageError(f"{directory}: no document {number}; it holds 0 to {first - 1}")
