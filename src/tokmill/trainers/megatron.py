"""Megatron-LM and what shares its files: `PREFIX.bin`, `PREFIX.idx`, and a mask beside them.

The shards of a dataset are such files already. Source of the layout: Megatron-LM,
megatron/core/datasets/indexed_dataset.py; of the options, megatron/training/arguments.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from tokmill.dataset.layout import MANIFEST, SPLITS
from tokmill.dataset.sidecars import IndexWriter, index_bytes
from tokmill.errors import UsageError, VerifyError
from tokmill.settings.declare import parse_quantity
from tokmill.trainers.trainer import (
    Checked,
    ExportSource,
    Layout,
    Linked,
    Written,
    padded,
    yaml_text,
)
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tokmill.dataset.manifest import ShardRow
    from tokmill.dataset.reader import Shard
    from tokmill.trainers.options import ExportOptions

DATA = "data.json"
"""The prefixes of each split, with weights: for `--per-split-data-args-path`."""

MOST_ON_A_LINE = 16
"""Prefixes that are written on the command line; more are read from `DATA`."""

PADDED_TO = 128
"""Megatron's own default: rows of the embedding are a multiple of it, times tensor parallelism."""

_VALID = {"train": "train", "val": "valid"}
_BLOCK = 1 << 16
_TYPES: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.int32}


@dataclass(frozen=True, eq=False, slots=True)
class Group:
    """Shards of one split that are trained together.

    `folder`: part of the names of their files in an export, '' for the exported dataset. `wanted`:
    tokens that the run is to see of them, all shards together; 0 if nothing was asked for.
    """

    label: str
    folder: str
    source: ExportSource
    split: str
    entries: tuple[ShardRow, ...]
    wanted: int = 0

    @property
    def n_tokens(self) -> int:
        """Return the tokens of the shards, eos included."""
        return sum(entry.tokens for entry in self.entries)


class Megatron:
    """Megatron-LM, and trainers that read its indexed datasets."""

    title = "Megatron-LM"
    kinds: frozenset[str] = frozenset({"pretrain", "sft"})
    options = frozenset({"merge", "tokens"})
    reader: tuple[str, ...] = ("megatron-core", "torch")

    def layout(self, source: ExportSource, options: ExportOptions, output: Path) -> Layout:
        """Return the shards as they are or merged, and what Megatron reads of them at start."""
        prefixes = _plan_prefixes(source, options)
        place = output.absolute()
        blend = {
            name: _blend([one for one in prefixes if one.group.split == split], place)
            for split, name in _VALID.items()
        }
        files = [file for prefix in prefixes for file in prefix.files()]
        if source.kind == "sft":
            masks = [_mask_of(prefix) for prefix in prefixes]
            files += [file for prefix in masks for file in prefix.files()]
            return Layout(files, _sft_usage(prefixes[0], place), "target", _sft_notes(source))
        shards: dict[ExportSource, set[str]] = {}
        for prefix in prefixes:
            shards.setdefault(prefix.source, set()).update(row.name for row in prefix.entries)
        data = json.dumps(self._data(blend), indent=1).encode() + b"\n"
        files.append(Written.of(DATA, data))
        usage = self._usage(source, blend, place)
        notes = [*self._tokenizer_notes(source), *_notes(prefixes)]
        return Layout(files, usage, "", notes, list(shards.items()))

    def _tokenizer_notes(self, source: ExportSource) -> list[str]:
        return _tokenizer_notes(source)

    def _data(self, blend: Mapping[str, list[str] | None]) -> Mapping[str, list[str] | None]:
        """Return what `DATA` holds."""
        return {**blend, "test": None}

    def _usage(
        self, source: ExportSource, blend: Mapping[str, list[str] | None], place: Path
    ) -> str:
        return _usage(source, blend, place)

    def _reader(self) -> tuple[str, Any]:
        """Return name and version of the package that reads, and its class."""
        from megatron.core.datasets.indexed_dataset import IndexedDataset

        return f"megatron-core {version('megatron-core')}", IndexedDataset

    def check(self, source: ExportSource, options: ExportOptions, output: Path) -> Checked:
        """Compare every document and index, mapped and not; see `Trainer.check`."""
        name, dataset_class = self._reader()
        prefixes = _plan_prefixes(source, options)
        masks = [_mask_of(prefix) for prefix in prefixes] if source.kind == "sft" else []
        for prefix in (*prefixes, *masks):
            path = str(output.absolute() / prefix.name)
            for mmap in (True, False):
                _compare(dataset_class(path, mmap=mmap), prefix, path)
        n_documents = plural(sum(prefix.n_documents for prefix in prefixes), "document")
        n_tokens = plural(sum(prefix.n_tokens for prefix in prefixes), "token")
        compared = f"{n_documents}, {n_tokens}{' and their masks' if masks else ''}"
        return Checked(name, compared)


@dataclass(frozen=True, slots=True)
class Prefix:
    """One `PREFIX.bin` with its `PREFIX.idx`: a shard, or all shards of a group one by one.

    `name`: path of the files relative to the output, without ending. `ending`: `bin` or `mask`, the
    files of the dataset that are its body. `item_bytes`: of a token, or 1 for a mask.
    """

    name: str
    group: Group
    entries: tuple[ShardRow, ...]
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
        return sum(entry.documents for entry in self.entries)

    @property
    def n_tokens(self) -> int:
        """Return the number of tokens, eos included."""
        return sum(entry.tokens for entry in self.entries)

    def shards(self) -> Iterator[Shard]:
        """Yield the shards, mapped, in order."""
        wanted = {entry.name for entry in self.entries}
        documents = self.source.documents(self.group.split)
        for index, entry in enumerate(documents.entries):
            if entry.name in wanted:
                yield documents.shard(index)

    def files(self) -> list[Linked | Written]:
        """Return the two files."""
        n, path = self.n_documents, self.source.path(self.entries[0].name, "idx")
        index: Linked | Written = Linked(f"{self.name}.idx", path)
        if len(self.entries) > 1 or self.ending != "bin":
            index = Written(f"{self.name}.idx", index_bytes(n), partial(_write_index, self))
        return [self.source.body(f"{self.name}.bin", self.entries, self.ending), index]


def _plan_prefixes(source: ExportSource, options: ExportOptions) -> list[Prefix]:
    """Return the prefixes of an export, those of masks not included; see `groups`."""
    if source.kind == "sft" and options.tokens:
        raise UsageError("--tokens: no Megatron trainer blends chats with masks: leave it out")
    if source.vocab_size > 1 << 31:
        raise UsageError(f"{source.where}: ids of 2^31 and more, which Megatron cannot read")
    found = groups(source, options.tokens)
    prefixes = []
    for split in SPLITS:
        of_split = [group for group in found if group.split == split]
        for number, group in enumerate(of_split, 1):
            if options.merge:
                name = f"{split}-{number}" if len(of_split) > 1 else split
                prefixes.append(Prefix(name, group, group.entries))
                continue
            folder = f"{split}/{group.folder}" if group.folder else split
            prefixes += [
                Prefix(f"{folder}/{entry.name}", group, (entry,)) for entry in group.entries
            ]
    return prefixes


def groups(source: ExportSource, tokens: Sequence[str]) -> list[Group]:
    """Return the shards of an export in groups: one for each split, or for each SOURCE of `tokens`.

    The val split is not blended: it is one group for each dataset.

    Raises:
        UsageError: a SOURCE is no dataset, nothing is said of the exported dataset, or a dataset
            has another tokenizer.
    """
    if not tokens:
        return [_whole(source, split, "") for split in source.splits]
    wanted = _parse(tokens)
    datasets = _datasets(source, list(wanted))
    found = [
        _whole(other, "train", folder, name, wanted[name])
        for name, (other, folder) in datasets.items()
        if wanted[name]
    ]
    trained = [one for name, one in datasets.items() if wanted[name] and one[0] is not source]
    vals = [(source, ""), *trained]
    return [*found, *(_whole(one, "val", folder) for one, folder in vals if "val" in one.splits)]


def _parse(tokens: Sequence[str]) -> dict[str, int]:
    """Return the tokens of each SOURCE."""
    wanted: dict[str, int] = {}
    for text in tokens:
        name, equals, amount = text.rpartition("=")
        if not name or not equals:
            raise UsageError(f"--tokens: expected SOURCE=60B, found {text!r}")
        if name in wanted:
            raise UsageError(f"--tokens {name}: given twice")
        wanted[name] = parse_quantity(amount, "count", f"--tokens {name}")
    if not any(wanted.values()):
        raise UsageError("--tokens: every source has 0 tokens: name some to train on")
    return wanted


def _datasets(source: ExportSource, names: Sequence[str]) -> dict[str, tuple[ExportSource, str]]:
    """Return the datasets that are named by their directory, each with a folder of its own."""
    found: dict[str, tuple[ExportSource, str]] = {}
    seen: dict[Path, str] = {}
    for name in names:
        path = Path(name)
        if not (path / MANIFEST).is_file():
            raise UsageError(f"--tokens {name}: expected the directory of a dataset")
        if (before := seen.setdefault(path.resolve(), name)) != name:
            raise UsageError(f"--tokens {name}: is the dataset {before}: name it once")
        if path.resolve() == source.directory.resolve():
            found[name] = (source, "")
            continue
        other = ExportSource(path)
        for key, mine in (("kind", source.kind), ("tokenizer", _tokenizer(source))):
            theirs = other.kind if key == "kind" else _tokenizer(other)
            if mine != theirs:
                raise UsageError(
                    f"--tokens {name}: has another {key} than {source.where}: "
                    "one run cannot train on both"
                )
        stem = path.resolve().name
        count = sum(one == stem or one.startswith(f"{stem}-") for _, one in found.values())
        found[name] = (other, f"{stem}-{count + 1}" if count else stem)
    if all(one is not source for one, _ in found.values()):
        raise UsageError(
            f"--tokens: nothing is said of the exported dataset: add --tokens "
            f"{quote(str(source.directory))}=60B, or =0 to leave it out"
        )
    return found


def _tokenizer(source: ExportSource) -> tuple[str, int | None]:
    return source.manifest.tokenizer.identity, source.eos_id


def _whole(
    source: ExportSource, split: str, folder: str, label: str = "", wanted: int = 0
) -> Group:
    label = label or str(source.directory)
    return Group(label, folder, source, split, tuple(source.entries(split)), wanted)


def _mask_of(prefix: Prefix) -> Prefix:
    """Return the prefix of the masks beside the tokens of a prefix."""
    return Prefix(f"{prefix.name}_mask", prefix.group, prefix.entries, "mask")


def _write_index(prefix: Prefix, file: BinaryIO) -> None:
    writer = IndexWriter(file, file.write, prefix.item_bytes)
    for shard in prefix.shards():
        writer.append(shard.lengths[:])
    writer.finish()


def _blend(prefixes: Sequence[Prefix], place: Path) -> list[str] | None:
    """Return the prefixes of a split; with a weight before each, if tokens were asked for."""
    if not prefixes:
        return None
    names = [f"{place}/{prefix.name}" for prefix in prefixes]
    total = sum(group.wanted for group in dict.fromkeys(prefix.group for prefix in prefixes))
    if not total:
        return names
    weights = [one.group.wanted / total * (one.n_tokens / one.group.n_tokens) for one in prefixes]
    pairs = zip(weights, names, strict=True)
    return [text for weight, name in pairs for text in (f"{weight:.10g}", name)]


def _usage(source: ExportSource, blend: Mapping[str, list[str] | None], place: Path) -> str:
    """Return options of pretrain_gpt.py, one on each line."""
    train, valid = (blend[name] or [] for name in _VALID.values())
    lines = [f"--per-split-data-args-path {quote(f'{place}/{DATA}')}"]
    if max(len(train), len(valid)) <= 2 * MOST_ON_A_LINE:
        lines = [f"--data-path {join(train)}", "--split 99,1,0"]
        if valid:
            lines = [f"--train-data-path {join(train)}", f"--valid-data-path {join(valid)}"]
    name = quote(str(source.manifest.tokenizer.name))
    lines += [
        f"--tokenizer-type HuggingFaceTokenizer --tokenizer-model {name}",
        f"--make-vocab-size-divisible-by {PADDED_TO}",
    ]
    return " \\\n".join(lines)


def _tokenizer_notes(source: ExportSource) -> list[str]:
    """Return what Megatron-LM makes of the tokenizer."""
    eos = source.manifest.tokenizer.eos
    rows = padded(source.vocab_size, PADDED_TO)
    return [
        f"the tokenizer that Megatron loads must have {eos.token} = {eos.id} as its eod: "
        "--reset-position-ids, --reset-attention-mask and --eod-mask-loss look for that id",
        f"Megatron pads the vocabulary: {source.vocab_size:,} ids get {rows:,} rows, or a multiple "
        f"of {PADDED_TO} x tensor parallelism",
    ]


def _notes(prefixes: Sequence[Prefix]) -> list[str]:
    """Return the traps of pretraining."""
    notes = [f"{DATA} names absolute paths: export again after the files are moved"]
    if len(prefixes) > MOST_ON_A_LINE:
        notes.append(
            f"{plural(len(prefixes), 'prefix')}: Megatron opens each at start, which takes minutes "
            "for thousands: --merge writes one for each split"
        )
    blended = [group for group in dict.fromkeys(one.group for one in prefixes) if group.wanted]
    notes += [
        f"{group.label}: {group.wanted:,} tokens are asked for, which is "
        f"{group.wanted / group.n_tokens:.3g} times its {group.n_tokens:,}"
        for group in blended
    ]
    if total := sum(group.wanted for group in blended):
        notes.append(f"the weights hold for any length of run; {total:,} tokens were asked for")
    return notes


def _sft_usage(prefix: Prefix, place: Path) -> str:
    """Return code that reads the first pair of prefixes."""
    name = f"{place}/{prefix.name}"
    return "\n".join(
        [
            "from megatron.core.datasets.indexed_dataset import IndexedDataset",
            "",
            f"tokens, mask = IndexedDataset({name!r}), IndexedDataset({name + '_mask'!r})",
            "ids, trained = tokens[0], mask[0]  # sample 0",
            "inputs, labels, loss_mask = ids[:-1], ids[1:], trained[1:]",
        ]
    )


def _sft_notes(source: ExportSource) -> list[str]:
    notes = [
        "no released Megatron trainer reads masks beside its tokens: your dataset class reads the "
        "prefix and PREFIX_mask, which have the same sequences and lengths",
        "a mask stands at its own token: shift it with the labels",
    ]
    if source.manifest.packs:
        notes.append("the packs of the dataset are not exported: each sequence is one sample")
    return notes


def _compare(theirs: Any, prefix: Prefix, path: str) -> None:
    """Compare the index, then every document one by one."""
    n = prefix.n_documents
    if len(theirs) != n or len(theirs.document_indices) != n + 1:
        raise VerifyError(f"{path}.idx: {plural(len(theirs), 'sequence')}, expected {n:,}")
    if theirs.index.dtype is not _TYPES[prefix.item_bytes]:
        raise VerifyError(f"{path}.idx: its dtype is {theirs.index.dtype}")
    for start in range(0, n + 1, _BLOCK):
        found = theirs.document_indices[start : start + _BLOCK]
        if not np.array_equal(found, np.arange(start, start + len(found))):
            raise VerifyError(f"{path}.idx: document indices from {start} on differ")
    number = 0
    for shard in prefix.shards():
        body = shard.tokens if prefix.ending == "bin" else shard.sidecars[prefix.ending]
        for place in range(len(shard.lengths)):
            if not np.array_equal(theirs[number], body[shard.span(place)]):
                raise VerifyError(f"{path}.bin: document {number} differs from {shard.name}")
            number += 1


class Automodel(Megatron):
    """NeMo Automodel, which reads the files of Megatron-LM without it."""

    title = "NeMo Automodel"
    kinds = frozenset({"pretrain"})
    reader = ("nemo-automodel", "torch")

    def _data(self, blend: Mapping[str, list[str] | None]) -> Mapping[str, list[str] | None]:
        """Return what `DATA` holds: Automodel refuses a split without paths."""
        return {name: paths for name, paths in blend.items() if paths}

    def _tokenizer_notes(self, source: ExportSource) -> list[str]:
        eos = source.manifest.tokenizer.eos
        return [f"the tokenizer of the section must have {eos.token} = {eos.id} as its eos"]

    def _usage(
        self, source: ExportSource, blend: Mapping[str, list[str] | None], place: Path
    ) -> str:
        """Return the sections of its YAML that name the data."""
        lines = []
        for section, split in (("dataset", "train"), ("validation_dataset", "validation")):
            if split == "validation" and not blend["valid"]:
                continue
            lines += [
                f"{section}:",
                "  _target_: nemo_automodel.components.datasets.llm.megatron_dataset."
                "MegatronPretraining",
                f"  paths: {yaml_text(f'{place}/{DATA}')}",
                "  seq_length: 4096",
                f"  splits_to_build: {split}",
            ]
        return "\n".join(lines)

    def _reader(self) -> tuple[str, Any]:
        from nemo_automodel.components.datasets.llm.megatron.indexed_dataset import IndexedDataset

        return f"nemo-automodel {version('nemo-automodel')}", IndexedDataset


TRAINER = Megatron()
AUTOMODEL = Automodel()
