"""The identity of a dataset: what its files of tokens hold, and not how or where they were made.

Two datasets whose tokens, indexes, masks and weights are equal, shard by shard, have one identity:
of a run, a mix or an import; packed or not; repaired, or made again elsewhere. It is computed from
the sums of the manifest, so nothing else is read. Readers compare it to know that the dataset at a
path is still the one that they opened, or the one that a saved state is of.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.dataset.checksum import canonical_json, sha256_hex
from tokmill.dataset.layout import MANIFEST, SPLITS
from tokmill.errors import VerifyError
from tokmill.urls import shown_place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokmill.dataset.manifest import Manifest


def identity_of(manifest: Manifest, where: Path | str, beside: Iterable[str] = ()) -> str:
    """Return the identity of a dataset: the algorithm of its sums, `:`, and a sha256 in hex.

    It is over kind, dtype, eos, and in the order of each split the sums of `.bin`, `.idx`, `.mask`
    and `.weight`. Sums of two algorithms cannot be compared, so the algorithm is part of it.

    Args:
        manifest: of a finished dataset.
        where: its directory or URL, for the message.
        beside: names of further files that a reader reads, such as those of packs. Their sums, in
            this order, are part of what it compares.

    Raises:
        VerifyError: the manifest lists no sum of a file, or sums of two algorithms.
    """
    try:
        entries = {entry.name: entry for entry in manifest.files}
        read = {split: [entries[name] for name in _names(manifest, split)] for split in SPLITS}
        others = [entries[name] for name in beside]
        algorithms = {entry.algorithm for of_split in read.values() for entry in of_split}
        (algorithm,) = algorithms | {entry.algorithm for entry in others}
        decisive: dict[str, Any] = {
            "kind": manifest.kind,
            "dtype": manifest.dtype,
            "eos": manifest.tokenizer.eos.id,
            "algorithm": algorithm,
        }
    except (LookupError, ValueError) as error:
        raise VerifyError(
            f"{where}/{MANIFEST}: damaged manifest: files: expected a sum of each file of a shard, "
            f"of one algorithm ({error!r}); see tokmill verify"
        ) from None
    for split, of_split in read.items():
        decisive[split] = [entry.checksum for entry in of_split]
    if others:
        decisive["beside"] = [entry.checksum for entry in others]
    return f"{algorithm}:{sha256_hex(canonical_json(decisive))}"


def _names(manifest: Manifest, split: str) -> list[str]:
    """Return the names of the files of the shards of a split, in order."""
    endings = ("bin", "idx", *manifest.sidecars)
    return [f"{row.name}.{ending}" for row in manifest.of_split(split) for ending in endings]


def algorithm_of(identity: str) -> str:
    """Return the algorithm that an identity names."""
    return identity.partition(":")[0]


def replaced(directory: Path) -> VerifyError:
    """Return the error of a dataset whose identity is another one than when it was opened."""
    where = shown_place(directory)
    return VerifyError(f"{where}: the dataset was replaced after it was opened: open it again")
