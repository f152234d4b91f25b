"""What a trainer is, and the dataset that it gets: its files with their checksums, and its splits.

A new trainer is one file with an object of the shape of `Trainer`, and one row in
`tables.TRAINERS`. Positions in the stream of a split count tokens from its start, over all its
shards; spans are half-open.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from tokmill.dataset.checked import CheckedFiles
from tokmill.dataset.documents import Documents
from tokmill.dataset.layout import PLAN
from tokmill.dataset.packing import Packs
from tokmill.dataset.packs import check_packs, open_packs
from tokmill.dataset.reader import read_intact_manifest
from tokmill.errors import UsageError, VerifyError
from tokmill.urls import shown_place
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokmill.dataset.manifest import ShardRow
    from tokmill.dataset.reader import Shard
    from tokmill.trainers.options import ExportOptions

_Size = TypeVar("_Size", int, npt.NDArray[np.int64])

_READ = (".bin", ".idx", ".mask", ".weight", ".meta")
_COMPARED_TOKENS = 1 << 20
"""Tokens that are compared at a time."""


def _is_of_packs(path: Path) -> bool:
    return path.name.startswith("packs-")


def padded(n: _Size, multiple: int) -> _Size:
    """Return the next multiple, or `n` itself if it is one; of each number of an array."""
    return -(-n // multiple) * multiple


def yaml_text(text: str) -> str:
    """Return a text as YAML; in quotes, if it has characters with a meaning in YAML."""
    return text if re.fullmatch(r"[A-Za-z0-9/._-]+", text) else json.dumps(text, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Linked:
    """A file with the bytes of a file of the dataset: a hard link, a reflink or a copy of it.

    `name`: path relative to the output. `source`: the file of the dataset, one of its manifest.
    """

    name: str
    source: Path


@dataclass(frozen=True, slots=True)
class Written:
    """A file that is written. `n_bytes`: its size, at most; checked against free disk space.

    `write`: writes all of it to a binary file that can `write`, `tell` and `seek`; with a bounded
    amount of memory, whatever the size of the dataset.
    """

    name: str
    n_bytes: int
    write: Callable[[BinaryIO], None]

    @classmethod
    def of(cls, name: str, data: bytes) -> Written:
        """Return a file that holds `data`."""

        def write(file: BinaryIO) -> None:
            file.write(data)

        return cls(name, len(data), write)


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of an export, and how they are used.

    `usage`: what the user writes into the trainer's settings: code or options, one or more lines.
    `mask_alignment`: `target` or `predictor`, '' without masks. `notes`: what the user must know,
    such as tokens that the trainer's reader leaves out; one line each. `shards`: the datasets that
    are read, with the names of their shards; () is all of the exported dataset. `has_weights`:
    whether the weights of tokens in the loss are in the files, if the dataset has any.
    """

    files: Sequence[Linked | Written]
    usage: str
    mask_alignment: str = ""
    notes: Sequence[str] = field(default=())
    shards: Sequence[tuple[ExportSource, Collection[str]]] = field(default=())
    has_weights: bool = False


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of reading an export with the trainer's own reader: all of it was equal.

    `reader`: name and version. `compared`: how much was compared, such as `7,361 documents`.
    `left_out`: tokens at the ends of files that the reader never returns, by its own rule.
    """

    reader: str
    compared: str
    left_out: int = 0


class Trainer(Protocol):
    """One trainer, or several that read the same files.

    Attributes:
        title: its name as its users write it, such as `Megatron-LM`.
        kinds: the kinds of datasets that it takes: `pretrain`, `sft`.
        options: names of the fields of `ExportOptions` that it uses, without `copy`.
        reader: packages that `check` imports, as pip calls them; () if NumPy reads the files.
    """

    title: str
    kinds: frozenset[str]
    options: frozenset[str]
    reader: tuple[str, ...]

    def layout(self, source: ExportSource, options: ExportOptions, output: Path) -> Layout:
        """Return the files of an export to `output`; writes nothing.

        Raises:
            UsageError: the trainer cannot read such a dataset; the message says why.
        """

    def check(self, source: ExportSource, options: ExportOptions, output: Path) -> Checked:
        """Read an export with the trainer's own reader, and compare all of it with the dataset.

        Raises:
            VerifyError: something differs.
        """


class ExportSource:
    """A finished dataset, opened for an export; raises what `read_intact_manifest` raises.

    Attributes:
        directory: the directory; `where`: for messages, as the URL of a store.
        manifest: what `manifest.json` says.
        kind: `pretrain` or `sft`.
        dtype: of the tokens: uint16 or uint32, little-endian.
        splits: the splits that hold documents.
        alignment: of masks in files that are those of the dataset: `target`, or '' without masks.
        checked: its files, and their sums.
    """

    def __init__(self, directory: Path) -> None:
        self.directory, self.where = directory, shown_place(directory)
        self.manifest = read_intact_manifest(directory)
        self.kind = self.manifest.kind
        self.alignment = "target" if self.kind == "sft" else ""
        self.dtype: np.dtype[np.unsignedinteger] = np.dtype(self.manifest.dtype).newbyteorder("<")
        self.splits = self.manifest.splits
        self._documents = {
            split: Documents(directory, self.manifest, split) for split in self.splits
        }
        self.checked = CheckedFiles.of(directory, self.manifest.files)

    def check_files(self) -> None:
        """Check the sizes of the files of shards and packs, and the sums of indexes and packs.

        These say where everything else is read. From now on, all are watched: see `CheckedFiles`.

        Raises:
            StorageError: one cannot be read.
            VerifyError: one is missing, has another size, or is damaged.
        """
        files = self.checked.entries.items()
        self.checked.watch(p for p, entry in files if "/" not in entry.name and entry.name != PLAN)
        self.checked.check(p for p in self.read_paths() if p.suffix == ".idx" or _is_of_packs(p))

    def check_uint16(self, title: str) -> None:
        """Check that a trainer that reads uint16 can read the tokens; raises `UsageError`."""
        if self.dtype.itemsize != 2:
            way = "make it with --dtype=uint16"
            if self.vocab_size > 1 << 16:
                way = f"its tokenizer has {self.vocab_size:,} ids, choose one with at most 65,536"
            raise UsageError(
                f"{self.where}: {title} reads uint16, and this dataset is uint32: {way}"
            )

    @property
    def eos_id(self) -> int:
        """Return the id of eos."""
        return self.manifest.tokenizer.eos.id

    @property
    def vocab_size(self) -> int:
        """Return the largest id of the tokenizer, plus 1."""
        return self.manifest.tokenizer.vocab_size

    def entries(self, split: str) -> list[ShardRow]:
        """Return the shards of a split in the order of the dataset."""
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
                for start in range(0, len(shard.mask), _COMPARED_TOKENS):
                    span = slice(start, start + _COMPARED_TOKENS)
                    if (shard.weights[span] != shard.mask[span]).any():
                        return True
        return False

    def read_paths(self, names: Collection[str] | None = None) -> Iterator[Path]:
        """Yield the files that exports read: tokens, indexes, masks, weights and packs.

        `names`: of the shards that are read; None for all.
        """
        if names is None:
            names = {entry.name for entry in self.manifest.shards}
        for path in self.checked.entries:
            if _is_of_packs(path) or (path.stem in names and path.suffix in _READ):
                yield path

    @cached_property
    def packs(self) -> dict[str, Packs]:
        """Return the pack index by split, mapped and checked; empty if there is none.

        Raises:
            VerifyError: a file of it is missing or damaged.
        """
        packed = self.manifest.packs
        found = {}
        for split in self.splits:
            if split in packed:
                found[split] = open_packs(self.directory, split, packed[split])
                where = f"{self.where}: the pack index of {split}"
                check_packs(found[split], len(self._documents[split]), where)
        return found

    def copy_tokens(self, split: str, start: int, stop: int, file: BinaryIO | None) -> None:
        """Append the tokens of a span to a file; see `CheckedFiles.copy`."""
        item = self.dtype.itemsize
        for index, own in self._spans(split, start, stop):
            name = self.entries(split)[index].name
            self.checked.copy(self.path(name, "bin"), own.start * item, own.stop * item, file)

    def _spans(self, split: str, start: int, stop: int) -> Iterator[tuple[int, slice]]:
        """Yield the number of each shard that a span has tokens of, and their span in the shard."""
        begin = 0
        for index, entry in enumerate(self.entries(split)):
            first, last = max(start - begin, 0), min(stop - begin, entry.tokens)
            if first < last:
                yield index, slice(first, last)
            begin += entry.tokens

    def body(self, name: str, entries: Sequence[ShardRow], ending: str = "bin") -> Linked | Written:
        """Return a file of an export with the files of shards, end to end: a link to a single one.

        `ending`: `bin` or `mask`.
        """
        if len(entries) == 1:
            return Linked(name, self.path(entries[0].name, ending))
        item_bytes = self.dtype.itemsize if ending == "bin" else 1
        sizes = {self.path(one.name, ending): one.tokens * item_bytes for one in entries}

        def write(file: BinaryIO) -> None:
            for path, n_bytes in sizes.items():
                self.checked.copy(path, 0, n_bytes, file)

        return Written(name, sum(sizes.values()), write)

    def check_tokens(
        self, split: str, start: int, found: npt.NDArray[np.unsignedinteger], path: Path
    ) -> None:
        """Check that the tokens of a file are those of the stream from `start` on.

        Raises:
            VerifyError: one differs; the message has its position in the file.
        """
        n_compared = 0
        for index, own in self._spans(split, start, start + len(found)):
            shard = self._documents[split].shard(index)
            for at in range(own.start, own.stop, _COMPARED_TOKENS):
                ours = shard.tokens[at : min(at + _COMPARED_TOKENS, own.stop)]
                theirs = found[n_compared : n_compared + len(ours)]
                if not np.array_equal(ours, theirs):
                    i = int(np.flatnonzero(ours != theirs)[0])
                    raise VerifyError(
                        f"{path}: token {n_compared + i:,} is {theirs[i]}, "
                        f"{shard.name}.bin has {ours[i]}"
                    )
                n_compared += len(ours)
        if n_compared < len(found):
            n_more = plural(len(found) - n_compared, "token")
            raise VerifyError(f"{path}: {n_more} more than the dataset")
