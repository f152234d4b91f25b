"""An export to Megatron, read with megatron-core's IndexedDataset and compared with its dataset."""

from __future__ import annotations

import json
import warnings
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.errors import VerifyError
from tokmill.trainers.trainer import Checked
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokmill.trainers.layouts.megatron_prefixes import Prefix

_BLOCK = 1 << 16
_TYPES: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.int32}


def check(prefixes: Sequence[Prefix], output: Path) -> Checked:
    """Compare every document, its length and its index; with and without memory maps.

    Raises:
        VerifyError: something differs.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages that megatron-core can do without
        from megatron.core.datasets.indexed_dataset import IndexedDataset

    counts = _counts(output)
    n_documents = n_tokens = 0
    for prefix in prefixes:
        path = str(output.absolute() / prefix.name)
        for mmap in (True, False):
            _compare(IndexedDataset(path, mmap=mmap), prefix, path)
        if path in counts:
            code = {2: 8, 4: 4}[prefix.item_bytes]
            by_counts = IndexedDataset(path, sequences_per_dataset=counts[path], dtype_code=code)
            _compare_index(by_counts, prefix, path)
        n_documents += prefix.n_documents if prefix.ending == "bin" else 0
        n_tokens += prefix.n_tokens if prefix.ending == "bin" else 0
    twin = " and their masks" if any(prefix.ending == "mask" for prefix in prefixes) else ""
    compared = f"{plural(n_documents, 'document')}, {plural(n_tokens, 'token')}{twin}"
    return Checked(f"megatron-core {version('megatron-core')}", compared)


def _counts(output: Path) -> dict[str, list[int]]:
    path = output / "sequences.json"
    return dict(json.loads(path.read_bytes())) if path.exists() else {}


def _compare(theirs: Any, prefix: Prefix, path: str) -> None:
    """Compare the index, then every document one by one."""
    _compare_index(theirs, prefix, path)
    number = 0
    for shard in prefix.shards():
        body = prefix.body(shard)
        for place in range(len(shard.lengths)):
            if not np.array_equal(theirs[number], body[shard.span(place)]):
                raise VerifyError(f"{path}.bin: document {number} differs from {shard.name}")
            number += 1


def _compare_index(theirs: Any, prefix: Prefix, path: str) -> None:
    n = prefix.n_documents
    if len(theirs) != n or len(theirs.document_indices) != n + 1:
        raise VerifyError(f"{path}.idx: {plural(len(theirs), 'sequence')}, expected {n:,}")
    if theirs.index.dtype is not _TYPES[prefix.item_bytes]:
        raise VerifyError(f"{path}.idx: its dtype is {theirs.index.dtype}")
    for start in range(0, n + 1, _BLOCK):
        found = theirs.document_indices[start : start + _BLOCK]
        if not np.array_equal(found, np.arange(start, start + len(found))):
            raise VerifyError(f"{path}.idx: document indices from {start} on differ")
    start = 0
    for shard in prefix.shards():
        stop = start + len(shard.lengths)
        if not np.array_equal(theirs.sequence_lengths[start:stop], shard.lengths):
            raise VerifyError(f"{path}.idx: lengths differ from {shard.name}.idx")
        start = stop
