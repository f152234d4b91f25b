"""The pairs `PREFIX.bin`, `PREFIX.idx` of an export to Megatron: shards as they are, or merged."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from tokmill.dataset.idx_file import IndexWriter, index_bytes
from tokmill.dataset.layout import SPLITS
from tokmill.errors import UsageError
from tokmill.trainers.layouts.blend import Group, groups
from tokmill.trainers.trainer import Linked, Written

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    from tokmill.dataset.reader import Shard
    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.source import ExportSource


@dataclass(frozen=True, slots=True)
class Prefix:
    """One `PREFIX.bin` with its `PREFIX.idx`: a shard, or all shards of a group one by one.

    `name`: path of the files relative to the output, without ending. `ending`: `bin` or `mask`, the
    files of the dataset that are its body. `item_bytes`: of a token, or 1 for a mask.
    """

    name: str
    group: Group
    entries: tuple[Mapping[str, Any], ...]
    ending: str = "bin"

    @property
    def source(self) -> ExportSource:
        """Return the dataset."""
        return self.group.source

    @property
    def item_bytes(self) -> int:
        """Return the bytes of a token, or 1 for a mask."""
        return self.source.dtype.itemsize if self.ending == "bin" else 1

    @property
    def n_documents(self) -> int:
        """Return the number of documents, which are Megatron's sequences too."""
        return sum(entry["documents"] for entry in self.entries)

    @property
    def n_tokens(self) -> int:
        """Return the number of tokens, eos included."""
        return sum(entry["tokens"] for entry in self.entries)

    def shards(self) -> Iterator[Shard]:
        """Yield the shards, mapped, in order."""
        wanted = {entry["name"] for entry in self.entries}
        documents = self.source.documents(self.group.split)
        for index, entry in enumerate(documents.entries):
            if entry["name"] in wanted:
                yield documents.shard(index)

    def body(self, shard: Shard) -> npt.NDArray[Any]:
        """Return what stands in the `.bin` for a shard: its tokens or its mask."""
        return shard.tokens if self.ending == "bin" else shard.sidecars[self.ending]

    def files(self) -> list[Linked | Written]:
        """Return the two files."""
        first, n = self.entries[0]["name"], self.n_documents
        body: Linked | Written = Linked(f"{self.name}.bin", self.source.path(first, self.ending))
        index: Linked | Written = Written(
            f"{self.name}.idx", index_bytes(n), partial(_write_index, self)
        )
        if len(self.entries) > 1:
            n_bytes = self.n_tokens * self.item_bytes
            body = Written(f"{self.name}.bin", n_bytes, partial(_write_body, self))
        elif self.ending == "bin":
            index = Linked(f"{self.name}.idx", self.source.path(first, "idx"))
        return [body, index]


def plan_prefixes(source: ExportSource, options: ExportOptions) -> list[Prefix]:
    """Return the prefixes of an export, those of masks not included; see `blend.groups`."""
    if source.kind == "sft" and options.tokens:
        raise UsageError("--tokens: no Megatron trainer blends chats with masks: leave it out")
    if source.vocab_size > 1 << 31:
        raise UsageError(f"{source.directory}: ids of 2^31 and more, which Megatron cannot read")
    found = groups(source, options.tokens)
    if not options.merge:
        return [
            Prefix(
                "/".join(filter(None, (group.split, group.folder, entry["name"]))), group, (entry,)
            )
            for group in found
            for entry in group.entries
        ]
    n_of_split = {split: sum(group.split == split for group in found) for split in SPLITS}
    numbers = dict.fromkeys(SPLITS, 0)
    merged = []
    for group in found:
        numbers[group.split] += 1
        number = f"-{numbers[group.split]}" if n_of_split[group.split] > 1 else ""
        merged.append(Prefix(f"{group.split}{number}", group, group.entries))
    return merged


def mask_of(prefix: Prefix) -> Prefix:
    """Return the prefix of the masks beside the tokens of a prefix."""
    return Prefix(f"{prefix.name}_mask", prefix.group, prefix.entries, "mask")


def _write_body(prefix: Prefix, file: BinaryIO) -> None:
    for entry in prefix.entries:
        path = prefix.source.path(entry["name"], prefix.ending)
        prefix.source.sums.copy(path, 0, entry["tokens"] * prefix.item_bytes, file)


def _write_index(prefix: Prefix, file: BinaryIO) -> None:
    writer = IndexWriter(file, file.write, prefix.item_bytes)
    for shard in prefix.shards():
        writer.append(shard.lengths)
    writer.finish()
