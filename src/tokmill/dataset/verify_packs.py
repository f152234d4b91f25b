"""Verify a pack index and packed rows: each sample once, no row too long, rows as listed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.layout import MANIFEST, pack_names
from tokmill.dataset.packed_rows import open_rows
from tokmill.dataset.packs import summary
from tokmill.dataset.reader import open_shard
from tokmill.errors import VerifyError
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from pathlib import Path

    from tokmill.dataset.packed_rows import RowReader
    from tokmill.dataset.reader import Shard


def check_packs(directory: Path, manifest: dict[str, Any], problems: list[str]) -> None:
    """Check the packs of every split, whose shards have no problem.

    Memory: a byte for each sample of the larger split.
    """
    packs = manifest["packs"]
    splits = {entry["split"] for entry in manifest["shards"]}
    if set(packs) != splits:
        problems.append(f"{MANIFEST}: packs of {sorted(packs)}, shards of {sorted(splits)}")
        return
    for split in packs:
        try:
            source = open_rows(directory, manifest, split)
            n_samples = sum(s["documents"] for s in manifest["shards"] if s["split"] == split)
            found = _index_problem(source, split, n_samples) or _fill_problem(
                source, packs[split], split
            )
            if not found and "shards" in packs[split]:
                found = _rows_problem(directory, manifest, source, split)
        except VerifyError as error:
            found = str(error)
        if found:
            problems.append(found)


def _index_problem(source: RowReader, split: str, n_samples: int) -> str:
    """Return a problem of the index itself, or ''."""
    offsets, samples = source.packs.row_offsets, source.packs.samples
    rows_name, samples_name = pack_names(split)
    if len(samples) != n_samples:
        return f"{samples_name}: {plural(len(samples), 'sample')}, the split holds {n_samples}"
    if offsets[0] != 0 or offsets[-1] != n_samples or np.any(offsets[1:] <= offsets[:-1]):
        return f"{rows_name}: its rows do not divide {plural(n_samples, 'sample')}"
    outside = np.flatnonzero((samples < 0) | (samples >= n_samples))
    if len(outside):
        return f"{samples_name}: no sample {samples[outside[0]]}; the split holds {n_samples}"
    is_packed = np.zeros(n_samples, bool)
    is_packed[samples] = True
    if not is_packed.all():
        return f"{samples_name}: sample {int(is_packed.argmin())} is in no row, another in two"
    falls = np.flatnonzero(samples[1:] < samples[:-1]) + 1
    if not np.isin(falls, offsets[:-1]).all() or np.any(np.diff(samples[offsets[:-1]]) < 0):
        return f"{samples_name}: rows are not by their first sample, or samples not in order"
    return ""


def _fill_problem(source: RowReader, said: dict[str, Any], split: str) -> str:
    """Return a row that is too long, or a difference from the manifest, or ''."""
    n_tokens = 0
    for start in range(0, source.packs.n_rows, source.block_rows):
        lengths = source.lengths(start, min(start + source.block_rows, source.packs.n_rows))
        n_tokens += int(lengths.sum())
        if int(lengths.max()) > source.capacity:
            row = start + int(lengths.argmax())
            return (
                f"{pack_names(split)[0]}: row {row} holds {plural(int(lengths.max()), 'token')}, "
                f"more than {source.capacity}"
            )
    n_samples = len(source.packs.samples)
    found = summary(source.packs.n_rows, n_samples, n_tokens, source.capacity)
    for key, value in found.items():
        if said[key] != value:
            return f"{MANIFEST}: says {said[key]} {key} of packs of {split}, found {value}"
    return ""


def _rows_problem(directory: Path, manifest: dict[str, Any], source: RowReader, split: str) -> str:
    """Return the first difference between packed rows and the index, or ''."""
    start = 0
    shards = manifest["packs"][split]["shards"]
    n_rows = sum(entry["documents"] for entry in shards)
    if n_rows != source.packs.n_rows:
        return f"{MANIFEST}: {n_rows} packed rows of {split}, the index has {source.packs.n_rows}"
    for entry in shards:
        shard = open_shard(directory, manifest, entry["name"], split)
        n = len(shard.lengths)
        if n != entry["documents"] or len(shard.tokens) != entry["tokens"]:
            return f"{shard.name}: other rows or tokens than the manifest says"
        if np.any(shard.lengths != source.capacity) or len(shard.tokens) != n * source.capacity:
            return f"{shard.name}.idx: not every row has {source.capacity} tokens"
        if found := _shard_problem(shard, source, start):
            return found
        start += n
    return ""


def _shard_problem(shard: Shard, source: RowReader, first_row: int) -> str:
    n, capacity = len(shard.lengths), source.capacity
    if not np.array_equal(shard.offsets, np.arange(n) * capacity * shard.tokens.itemsize):
        return f"{shard.name}.idx: its byte offsets are not those of its lengths"
    for start in range(0, n, source.block_rows):
        stop = min(start + source.block_rows, n)
        expected = source.rows(first_row + start, first_row + stop)
        for ending, body in {"bin": shard.tokens, **shard.sidecars}.items():
            differs = body[start * capacity : stop * capacity] != expected[ending]
            if differs.any():
                row = start + int(differs.argmax()) // capacity
                return f"{shard.name}.{ending}: row {row} is not what the pack index says"
    return ""
