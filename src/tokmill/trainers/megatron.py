"""Megatron-LM and what shares its files: `PREFIX.bin`, `PREFIX.idx`, and a mask beside them.

The shards of a dataset are such files already. Source of the layout: Megatron-LM,
megatron/core/datasets/indexed_dataset.py; of the options, megatron/training/arguments.py.
"""

from __future__ import annotations

import json
from shlex import quote
from typing import TYPE_CHECKING, Any

from tokmill.trainers.layouts.megatron_prefixes import Prefix, mask_of, plan_prefixes
from tokmill.trainers.padding import padded
from tokmill.trainers.trainer import Checked, Layout, Written
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tokmill.trainers.layouts.blend import Group
    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.source import ExportSource

SEQUENCES = "sequences.json"
"""Sequences and document indices of each prefix: Megatron need not open every `.idx` for them."""

DATA = "data.json"
"""The prefixes of each split, with weights: for `--per-split-data-args-path`."""

MOST_ON_A_LINE = 16
"""Prefixes that are written on the command line; more are read from `DATA`."""

PADDED_TO = 128
"""Megatron's own default: rows of the embedding are a multiple of it, times tensor parallelism."""

_VALID = {"train": "train", "val": "valid"}


class Megatron:
    """Megatron-LM, and trainers that read its indexed datasets."""

    title = "Megatron-LM"
    kinds = frozenset({"pretrain", "sft"})
    options = frozenset({"merge", "tokens"})
    reader = ("megatron-core", "torch")

    def layout(self, source: ExportSource, options: ExportOptions, output: Path) -> Layout:
        """Return the shards as they are or merged, and what Megatron reads of them at start."""
        prefixes = plan_prefixes(source, options)
        place = output.absolute()
        counts = {
            f"{place}/{prefix.name}": [prefix.n_documents, prefix.n_documents + 1]
            for prefix in prefixes
        }
        blend = {
            name: _blend([one for one in prefixes if one.group.split == split], place)
            for split, name in _VALID.items()
        }
        files = [file for prefix in prefixes for file in prefix.files()]
        texts = [(DATA, blend | {"test": None}), (SEQUENCES, counts)]
        if not _has_dtype_of_vocabulary(source):
            texts.pop()
        if source.kind == "sft":
            masks = [mask_of(prefix) for prefix in prefixes]
            files += [file for prefix in masks for file in prefix.files()]
            return Layout(files, _sft_usage(prefixes[0], place), "target", _sft_notes(source))
        shards: dict[ExportSource, set[str]] = {}
        for prefix in prefixes:
            shards.setdefault(prefix.source, set()).update(row["name"] for row in prefix.entries)
        files += [_json(name, value) for name, value in texts]
        usage = _usage(source, blend, place, with_counts=len(texts) == 2)
        return Layout(files, usage, "", _notes(source, prefixes), list(shards.items()))

    def check(self, source: ExportSource, options: ExportOptions, output: Path) -> Checked:
        """Compare every document and index, read with IndexedDataset; see `Trainer.check`."""
        from tokmill.trainers.checks.megatron import check

        prefixes = plan_prefixes(source, options)
        if source.kind == "sft":
            prefixes += [mask_of(prefix) for prefix in prefixes]
        return check(prefixes, output)


def _json(name: str, value: Any) -> Written:
    data = json.dumps(value, indent=1).encode() + b"\n"
    return Written.of(name, data)


def _has_dtype_of_vocabulary(source: ExportSource) -> bool:
    """Return whether Megatron, which reads no dtype with `SEQUENCES`, guesses the right one."""
    return (source.dtype.itemsize == 4) == (source.vocab_size > 1 << 16)


def _blend(prefixes: Sequence[Prefix], place: Path) -> list[str] | None:
    """Return the prefixes of a split; with a weight before each, if tokens were asked for."""
    if not prefixes:
        return None
    names = [f"{place}/{prefix.name}" for prefix in prefixes]
    total = sum(group.wanted for group in _groups_of(prefixes))
    if not total:
        return names
    weights = [one.group.wanted / total * (one.n_tokens / one.group.n_tokens) for one in prefixes]
    return [text for pair in zip(map(_weight, weights), names, strict=True) for text in pair]


def _groups_of(prefixes: Sequence[Prefix]) -> list[Group]:
    return list({id(prefix.group): prefix.group for prefix in prefixes}.values())


def _weight(share: float) -> str:
    return f"{share:.10g}"


def _usage(
    source: ExportSource,
    blend: Mapping[str, list[str] | None],
    place: Path,
    *,
    with_counts: bool,
) -> str:
    """Return options of pretrain_gpt.py, one on each line."""
    train, valid = (blend[name] or [] for name in _VALID.values())
    lines = [f"--per-split-data-args-path {quote(f'{place}/{DATA}')}"]
    if max(len(train), len(valid)) <= 2 * MOST_ON_A_LINE:
        lines = [f"--data-path {_words(train)}", "--split 99,1,0"]
        if valid:
            lines = [f"--train-data-path {_words(train)}", f"--valid-data-path {_words(valid)}"]
    if with_counts:
        lines.append(f"--per-dataset-sequences-path {quote(f'{place}/{SEQUENCES}')}")
    name = quote(str(source.manifest["tokenizer"]["name"]))
    lines += [
        f"--tokenizer-type HuggingFaceTokenizer --tokenizer-model {name}",
        f"--make-vocab-size-divisible-by {PADDED_TO}",
    ]
    return " \\\n".join(lines)


def _words(names: Sequence[str]) -> str:
    return " ".join(map(quote, names))


def _notes(source: ExportSource, prefixes: Sequence[Prefix]) -> list[str]:
    """Return the traps of pretraining."""
    eos = source.manifest["tokenizer"]["eos"]
    rows = padded(source.vocab_size, PADDED_TO)
    notes = [
        f"the tokenizer that Megatron loads must have {eos['token']} = {eos['id']} as its eod: "
        "--reset-position-ids, --reset-attention-mask and --eod-mask-loss look for that id",
        f"Megatron pads the vocabulary: {source.vocab_size:,} ids get {rows:,} rows, or a multiple "
        f"of {PADDED_TO} x tensor parallelism",
        f"{DATA} and {SEQUENCES} name absolute paths: export again after the files are moved",
    ]
    if not _has_dtype_of_vocabulary(source):
        notes[-1] = f"{DATA} names absolute paths: export again after the files are moved"
        notes.append(
            f"no {SEQUENCES}: with it Megatron takes the dtype from the size of the vocabulary, "
            f"and {source.dtype.name} is not what it would take"
        )
    if len(prefixes) > MOST_ON_A_LINE:
        notes.append(
            f"{plural(len(prefixes), 'prefix')}: Megatron opens each at start, which takes minutes "
            "for thousands: --merge writes one for each split"
        )
    notes.extend(
        f"{group.label}: {group.wanted:,} tokens are asked for, which is "
        f"{group.wanted / group.n_tokens:.3g} times its {group.n_tokens:,}"
        for group in _groups_of(prefixes)
        if group.wanted
    )
    if total := sum(group.wanted for group in _groups_of(prefixes)):
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
    if source.manifest.get("packs"):
        notes.append("the packs of the dataset are not exported: each sequence is one sample")
    return notes


TRAINER = Megatron()
