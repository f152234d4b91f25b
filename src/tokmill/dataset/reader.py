"""Read a finished dataset: its manifest, its shards, a document by number."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset import lock
from tokmill.dataset.file_array import FileArray, open_file
from tokmill.dataset.layout import (
    EXPORT_RECORD,
    MANIFEST,
    MIX_REQUEST,
    PLAN,
    SIDECARS,
    check_format_version,
)
from tokmill.dataset.made_by import (
    IMPORT,
    MANIFEST_BEGINNING,
    MIX,
    RUN,
    made_by,
    maker_in,
    unfinished,
)
from tokmill.dataset.manifest import Manifest, ShardRow, is_intact
from tokmill.dataset.sidecars import open_index
from tokmill.errors import StateError, UsageError, VerifyError
from tokmill.opening import begins_with, open_regular
from tokmill.storage import read_errors, storage_errors
from tokmill.urls import shown_place, store_url
from tokmill.words import in_utc, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    import numpy.typing as npt

    from tokmill.dataset.place import Place


_DOCUMENTS_AT_ONCE, _CHECKED_AT_ONCE = 1 << 10, 1 << 18


@dataclass(frozen=True, slots=True)
class Shard:
    """One `.bin` with its index and sidecars; all of them are read when they are looked at.

    `tokens`: (n_tokens,) uint16 or uint32. `lengths`: (n_documents,) int32 in tokens, `offsets`:
    (n_documents,) int64 in bytes. `mask`: (n_tokens,) uint8, 1 for a token that is a target; None
    for pretraining. `weights`: (n_tokens,) float32; None in a dataset without them. `path`: of the
    index, for messages.
    """

    name: str
    split: str
    tokens: FileArray
    lengths: FileArray
    offsets: FileArray
    mask: FileArray | None = None
    weights: FileArray | None = None
    path: Path = Path()

    @property
    def sidecars(self) -> dict[str, FileArray]:
        """Return the arrays beside the tokens, by the ending of their files."""
        bodies = {"mask": self.mask, "weight": self.weights}
        return {ending: body for ending, body in bodies.items() if body is not None}

    def span(self, i: int) -> slice:
        """Return the span of document `i` of the shard in `tokens`, `mask` and `weights`.

        Raises:
            VerifyError: the index is damaged: the document is not inside the shard.
        """
        return self._checked(self.offsets.number(i), self.lengths.number(i))

    def _checked(self, offset: int, length: int) -> slice:
        start = offset // self.tokens.itemsize
        if start < 0 or length < 1 or start + length > len(self.tokens):
            raise VerifyError(
                f"{self.path}: documents that overlap or begin outside the shard; "
                "see tokmill verify"
            )
        return slice(start, start + length)

    def document(self, i: int) -> npt.NDArray[np.unsignedinteger]:
        """Return the ids of document `i` of the shard, eos included; raises as `span`."""
        ids: npt.NDArray[np.unsignedinteger] = self.tokens[self.span(i)]
        return ids

    def documents(self) -> Iterator[npt.NDArray[np.unsignedinteger]]:
        """Yield the ids of every document, in order; raises as `span`."""
        for first in range(0, len(self.lengths), _DOCUMENTS_AT_ONCE):
            some = slice(first, first + _DOCUMENTS_AT_ONCE)
            offsets, lengths = self.offsets[some].tolist(), self.lengths[some].tolist()
            for offset, length in zip(offsets, lengths, strict=True):
                yield self.tokens[self._checked(offset, length)]

    def runs(self, most_tokens: int) -> Iterator[slice]:
        """Yield spans of documents with at most so many tokens together, but at least one."""
        for first in range(0, len(self.lengths), _CHECKED_AT_ONCE):
            ends = np.cumsum(self.lengths[first : first + _CHECKED_AT_ONCE], dtype=np.int64)
            start, before = 0, 0
            while start < len(ends):
                stop = int(np.searchsorted(ends, before + most_tokens, "right"))
                stop = max(stop, start + 1)
                yield slice(first + start, first + stop)
                start, before = stop, int(ends[stop - 1])

    def sample_mask(self, i: int) -> npt.NDArray[np.uint8] | None:
        """Return the mask of document `i` of the shard; None for pretraining."""
        return None if self.mask is None else self.mask[self.span(i)]

    def check_index(self) -> None:
        """Check that the documents stand in the shard end to end; the index is read once.

        Raises:
            VerifyError: they do not.
        """
        stop = 0
        for first in range(0, len(self.lengths), _CHECKED_AT_ONCE):
            some = slice(first, first + _CHECKED_AT_ONCE)
            lengths = self.lengths[some].astype(np.int64)
            starts = stop + np.cumsum(lengths) - lengths
            stop = int(starts[-1] + lengths[-1])
            expected = starts * self.tokens.itemsize
            if lengths.min() < 1 or not np.array_equal(self.offsets[some], expected):
                stop = -1
                break
        if stop != len(self.tokens):
            raise VerifyError(
                f"{self.path}: its documents do not add up to the "
                f"{plural(len(self.tokens), 'token')} of the shard; see tokmill verify"
            )


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of a finished dataset.

    Raises:
        UsageError: there is no dataset.
        StateError: the run is not finished, or the format is newer than this reader.
        VerifyError: the manifest is damaged.
        StorageError: it cannot be read.
    """
    return Manifest.of(plain_manifest(directory), shown_place(directory))


def plain_manifest(directory: Path, *, follow_links: bool = True) -> dict[str, Any]:
    """Read a manifest as plain values, of which nothing is checked; raises as `read_manifest`.

    Without `follow_links`, a link in its place is a `VerifyError`.
    """
    if store_url(directory):
        return _stored_manifest(directory)
    path = directory / MANIFEST
    if not os.path.lexists(path):
        problem = f"no {MANIFEST} there" if directory.is_dir() else "no such directory"
        maker, holder = _maker_in(directory), lock.holder_of(directory)
        raise _no_manifest(directory, problem, maker, holder)
    if path.is_symlink() and not follow_links:
        raise VerifyError(f"{path}: a link, not a file of the dataset")
    with storage_errors(path), open_regular(path, follow_links=follow_links) as file:
        return _parsed(file.read(), path)


def _stored_manifest(directory: Path) -> dict[str, Any]:
    """Return the plain values of a manifest in an object store, which takes one request."""
    from tokmill.stores.opening import open_store  # few datasets are in a store

    store = open_store(store_url(directory))
    try:
        content = store.read(MANIFEST)
    except FileNotFoundError:
        sizes = {name: entry.n_bytes for name, entry in store.entries().items()}
        sizes.pop(MANIFEST, None)  # it has just appeared
        maker, problem = made_by(sizes, store.read), f"no {MANIFEST} there"
        raise _no_manifest(store.url, problem, maker, "", store.last_written()) from None
    return _parsed(content, f"{store.url}/{MANIFEST}")


def _maker_in(directory: Path) -> str:
    """Return what makes the dataset of a directory without a manifest; see `made_by`."""

    def read(name: str) -> bytes:
        path = directory / name
        with storage_errors(path), open_regular(path, follow_links=True) as file:
            return file.read()

    names = (EXPORT_RECORD, MIX_REQUEST, PLAN)
    return made_by({name: 0 for name in names if (directory / name).is_file()}, read)


def surrounding_dataset(path: Path) -> Path | None:
    """Return the finished dataset inside which a path is: what else is there breaks `verify`."""
    parents = path.absolute().resolve().parents
    return next((p for p in parents if begins_with(p / MANIFEST, MANIFEST_BEGINNING)), None)


def manifest_in(place: Place) -> Manifest:
    """Return the manifest of a finished dataset in any place; raises as `read_manifest`."""
    return Manifest.of(plain_manifest_in(place), place.where)


def plain_manifest_in(place: Place) -> dict[str, Any]:
    """Return what `plain_manifest` does, of a dataset in any place."""
    try:
        content = place.read(MANIFEST)
    except FileNotFoundError:
        maker, problem = maker_in(place), f"no {MANIFEST} there"
        raise _no_manifest(
            place.where, problem, maker, place.holder(), place.last_written()
        ) from None
    return _parsed(content, f"{place.where}/{MANIFEST}")


def _no_manifest(
    where: Path | str,
    problem: str,
    maker: str,
    holder: str,
    last_written: datetime | None = None,
) -> StateError | UsageError:
    """Return the error of a place without a manifest.

    `maker`: what stands there, or '', see `made_by`. `holder`: who writes there, see
    `Place.holder`. `last_written`: see `Place`.
    """
    if holder:
        return _is_written(where, maker, holder)
    if maker == RUN and last_written is not None:
        return StateError(
            f"{where}: its run is not finished (no {MANIFEST}); a store does not show whether it "
            f"still works, but its newest object is of {in_utc(last_written)}"
            f"{_status(where, maker)}: if nothing writes there, run the same command again to "
            "continue it"
        )
    if maker:
        return unfinished(str(where), maker)
    return UsageError(f"{where}: not a tokmill dataset: {problem}: name the output of a run")


def _is_written(where: Path | str, maker: str, holder: str) -> StateError:
    """Return the error of a place where something is being made."""
    if holder == lock.TASKS:
        return StateError(
            f"{where}: tasks of a run are writing here: wait for their end{_status(where, maker)}, "
            f"then run tokmill finish {shlex.quote(str(where))}"
        )
    return StateError(
        f"{where}: {maker or RUN} is writing here: wait for its end{_status(where, maker)}"
    )


def _status(where: Path | str, maker: str) -> str:
    """Return how to see how far it is, in brackets; '' for what has no status."""
    place = shlex.quote(str(where))
    has_parts = maker in (RUN, IMPORT, MIX)
    return f" (tokmill status {place} shows how far it is)" if has_parts else ""


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


def read_intact_manifest(directory: Path) -> Manifest:
    """Read the manifest of a finished dataset, and check that it is complete and not changed.

    Raises:
        TokmillError: see `read_manifest` and `Manifest.check_complete`; also VerifyError: its own
            sha256 does not match.
    """
    return _intact(plain_manifest(directory), shown_place(directory))


def intact_manifest_in(place: Place) -> Manifest:
    """Return what `read_intact_manifest` does, of a dataset in any place."""
    return _intact(plain_manifest_in(place), place.where)


def _intact(data: Mapping[str, Any], where: Path | str) -> Manifest:
    if not is_intact(data):
        raise VerifyError(
            f"{where}/{MANIFEST}: its own sha256 does not match: it was changed; see tokmill verify"
        )
    manifest = Manifest.of(data, where)
    manifest.check_complete()
    return manifest


def sound_manifest(content: bytes, where: str) -> Manifest | None:
    """Return the manifest with this content; None if it was changed, or a value is wrong."""
    try:
        data = json.loads(content)
        if not isinstance(data, dict) or not is_intact(data):
            return None
        manifest = Manifest.of(data, where)
        _ = manifest.files, manifest.sources  # checked when they are looked at
    except (ValueError, RecursionError, VerifyError):
        return None
    return manifest


def open_shard(directory: Path, manifest: Manifest, entry: ShardRow) -> Shard:
    """Return the shard of a row of the manifest.

    Raises:
        VerifyError: a file is missing, or differs from the manifest: another number of documents or
            tokens, or tokens of another size.
        StorageError: a file cannot be read, or too many files are open.
    """
    name = entry.name
    dtype = np.dtype(manifest.dtype).newbyteorder("<")
    kinds: dict[str, np.dtype[Any]] = {"bin": dtype}
    kinds |= {ending: SIDECARS[ending] for ending in manifest.sidecars}
    index = directory / f"{name}.idx"
    lengths, offsets = open_index(index, entry.documents, dtype.itemsize)
    bodies = {}
    for ending, kind in kinds.items():
        path = directory / f"{name}.{ending}"
        with read_errors(path):
            bodies[ending] = FileArray(open_file(path), kind)
        if len(bodies[ending]) != entry.tokens:
            raise VerifyError(
                f"{shown_place(path)}: {plural(len(bodies[ending]), 'token')}, the manifest says "
                f"{entry.tokens:,}; see tokmill verify"
            )
    mask, weights = bodies.get("mask"), bodies.get("weight")
    return Shard(name, entry.split, bodies["bin"], lengths, offsets, mask, weights, index)
