"""The dataset that an export reads."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.checksum import FileEntry
from tokmill.dataset.documents import Documents
from tokmill.dataset.layout import PLAN, SPLITS
from tokmill.dataset.packing import Packs
from tokmill.dataset.packs import open_packs
from tokmill.dataset.reader import read_intact_manifest
from tokmill.errors import StorageError, VerifyError
from tokmill.trainers.source_sums import SourceSums
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from tokmill.dataset.reader import Shard

_READ = (".bin", ".idx", ".mask", ".weight", ".meta")
_WEIGHTS_READ = 1 << 20
"""Tokens whose weights are compared with their mask at a time."""


class ExportSource:
    """A finished dataset, opened for an export; raises what `read_intact_manifest` raises.

    Attributes:
        directory: the directory.
        manifest: what `manifest.json` says.
        kind: `pretrain` or `sft`.
        dtype: of the tokens: uint16 or uint32, little-endian.
        splits: the splits that hold documents.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.manifest = read_intact_manifest(directory)
        self.kind = str(self.manifest.get("kind", "pretrain"))
        self.dtype: np.dtype[np.unsignedinteger] = np.dtype(self.manifest["dtype"]).newbyteorder(
            "<"
        )
        held = {entry["split"] for entry in self.manifest["shards"]}
        self.splits = tuple(split for split in SPLITS if split in held)
        self._documents = {
            split: Documents(directory, self.manifest, split) for split in self.splits
        }

    def check_files(self) -> None:
        """Check that the files of the shards and packs are there, with the sizes of the manifest.

        Raises:
            StorageError: one cannot be read.
            VerifyError: one is missing, or has another size.
        """
        for entry in map(FileEntry.from_json, self.manifest["files"]):
            path = self.directory / entry.name
            if "/" in entry.name or entry.name == PLAN:
                continue
            try:
                n_bytes = path.stat().st_size
            except FileNotFoundError:
                raise VerifyError(f"{path}: missing; see tokmill verify") from None
            except OSError as error:
                raise StorageError(f"{path}: {str(error.strerror).lower()}") from None
            if n_bytes != entry.n_bytes:
                raise VerifyError(
                    f"{path}: {plural(n_bytes, 'byte')}, the manifest says {entry.n_bytes:,}; "
                    "see tokmill verify"
                )
            if not os.access(path, os.R_OK):
                raise StorageError(f"{path}: permission denied")

    @property
    def eos_id(self) -> int | None:
        """Return the id of eos; None if the tokenizer has none."""
        eos = self.manifest["tokenizer"]["eos"]
        return None if eos is None else int(eos["id"])

    @property
    def vocab_size(self) -> int:
        """Return the largest id of the tokenizer, plus 1."""
        return int(self.manifest["tokenizer"]["vocab_size"])

    def entries(self, split: str) -> list[Mapping[str, Any]]:
        """Return the shards of a split as rows of the manifest: name, split, documents, tokens."""
        return list(self._documents[split].entries) if split in self._documents else []

    def documents(self, split: str) -> Documents:
        """Return the documents of a split by number."""
        return self._documents[split]

    def shards(self, split: str) -> Iterator[Shard]:
        """Yield the shards of a split, mapped, in the order of the dataset."""
        return self._documents[split].shards()

    def path(self, name: str, ending: str) -> Path:
        """Return the path of a file of a shard, such as `ending` `bin`."""
        return self.directory / f"{name}.{ending}"

    def n_tokens(self, split: str) -> int:
        """Return the tokens of a split, eos included; 0 if it is empty."""
        return self._documents[split].n_tokens if split in self._documents else 0

    @cached_property
    def has_weights(self) -> bool:
        """Return whether a token has a weight other than 0 and 1; reads up to the first such."""
        for split in self.splits:
            for shard in self.shards(split):
                if shard.mask is None or shard.weights is None:
                    continue
                for start in range(0, len(shard.mask), _WEIGHTS_READ):
                    span = slice(start, start + _WEIGHTS_READ)
                    if (shard.weights[span] != shard.mask[span]).any():
                        return True
        return False

    @cached_property
    def sums(self) -> SourceSums:
        """Return the checksums of the files: what is copied is compared with the manifest."""
        return SourceSums(self.directory, self.manifest)

    def read_paths(self, names: Collection[str] | None = None) -> Iterator[Path]:
        """Yield the files that exports read: tokens, indexes, masks, weights and packs.

        `names`: of the shards that are read; None for all.
        """
        if names is None:
            names = {entry["name"] for entry in self.manifest["shards"]}
        for path in self.sums.paths():
            is_of_shard = path.stem in names and path.suffix in _READ
            if is_of_shard or path.name.startswith("packs-"):
                yield path

    @cached_property
    def packs(self) -> dict[str, Packs]:
        """Return the pack index by split, mapped; empty if the dataset is not packed."""
        packed = self.manifest.get("packs", {})
        splits = [split for split in self.splits if split in packed]
        return {split: open_packs(self.directory, split, packed[split]) for split in splits}
