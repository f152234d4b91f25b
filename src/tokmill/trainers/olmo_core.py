"""OLMo-core: bodies named `.npy`, the spans of their documents as `.csv.gz`, and label masks.

Source of the layout: OLMo-core, olmo_core/data/utils.py and numpy_dataset.py. The `.npy` has no
header: it is the ids end to end. A label mask is one byte a token, 1 = a target.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from tokmill.errors import UsageError
from tokmill.trainers.layouts.document_ends import count_eos, ends_of
from tokmill.trainers.layouts.olmo_core_csv import CHUNK_DOCUMENTS, most_bytes, write_csv
from tokmill.trainers.padding import padded
from tokmill.trainers.trainer import Checked, Layout, Linked, Written
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from pathlib import Path

    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.source import ExportSource

PADDED_TO = 128
"""Default of OLMo-core's `TokenizerConfig.padded_vocab_size`."""


class OlmoCore:
    """OLMo-core's numpy datasets."""

    title = "OLMo-core"
    kinds = frozenset({"pretrain", "sft"})
    options: frozenset[str] = frozenset()
    reader = ("ai2-olmo-core", "torch")

    def layout(self, source: ExportSource, options: ExportOptions, output: Path) -> Layout:
        """Return two files for each shard, three for chats; see `Trainer.layout`."""
        if source.eos_id is None:
            raise UsageError(
                f"{source.directory}: its tokenizer has no eos, and OLMo-core needs one: "
                "make the dataset with --eos-token"
            )
        files: list[Linked | Written] = []
        for split in source.splits:
            for index, entry in enumerate(source.entries(split)):
                name = entry["name"]
                files += [
                    Linked(f"{split}/{name}.npy", source.path(name, "bin")),
                    Written(
                        f"{split}/{name}.csv.gz",
                        most_bytes(entry["documents"], entry["tokens"]),
                        partial(_write_spans, source, split, index),
                    ),
                ]
                if source.kind == "sft":
                    files.append(Linked(f"{split}-mask/{name}.npy", source.path(name, "mask")))
        alignment = "target" if source.kind == "sft" else ""
        return Layout(files, _usage(source, output.absolute()), alignment, _notes(source))

    def check(self, source: ExportSource, options: ExportOptions, output: Path) -> Checked:
        """Compare every document and row, read with OLMo-core; see `Trainer.check`."""
        from tokmill.trainers.checks.olmo_core import check

        return check(source, output)


def _write_spans(source: ExportSource, split: str, index: int, file: BinaryIO) -> None:
    shard = source.documents(split).shard(index)
    starts = range(0, len(shard.lengths), CHUNK_DOCUMENTS)
    write_csv(file, (ends_of(shard, start, start + CHUNK_DOCUMENTS) for start in starts))


def _usage(source: ExportSource, place: Path) -> str:
    """Return Python that builds the config of the train split."""
    tokenizer = source.manifest["tokenizer"]
    bos = "" if tokenizer["bos"] is None else f" bos_token_id={tokenizer['bos']['id']},"
    is_sft = source.kind == "sft"
    config = "NumpyPackedFSLDatasetConfig" if is_sft else "NumpyFSLDatasetConfig"
    split = source.splits[0]
    lines = [
        f"from olmo_core.data import NumpyDatasetDType, {config}, TokenizerConfig",
        "",
        "tokenizer = TokenizerConfig(",
        f"    vocab_size={source.vocab_size}, eos_token_id={source.eos_id},{bos}",
        f"    pad_token_id={source.eos_id}, identifier={str(tokenizer['name'])!r},",
        ")",
        f"config = {config}(",
        f"    paths={_paths(source, split, place / split)}, expand_glob={'*' not in str(place)},",
        f"    dtype=NumpyDatasetDType.{source.dtype.name},",
        "    tokenizer=tokenizer,",
        "    sequence_length=4096,",
        '    work_dir="dataset-cache",',
    ]
    if is_sft:
        lines += [
            f"    label_mask_paths={_paths(source, split, place / f'{split}-mask')},",
            "    generate_doc_lengths=True,",
            "    use_array_if_local=False,",
        ]
    rows = padded(source.vocab_size, PADDED_TO)
    return "\n".join(
        [*lines, ")", f"vocab_size = tokenizer.padded_vocab_size()  # of the model: {rows}"]
    )


def _paths(source: ExportSource, split: str, folder: Path) -> list[str]:
    """Return a pattern of the files of a folder, or all of them: `*` cannot be escaped."""
    if "*" in str(folder):
        return [f"{folder}/{entry['name']}.npy" for entry in source.entries(split)]
    return [f"{folder}/*.npy"]


def _notes(source: ExportSource) -> list[str]:
    notes = [
        f"always pass the dtype, {source.dtype.name}: without it OLMo-core takes the smallest that "
        "holds the vocabulary",
        "rows hold sequence_length tokens, and the rest of each file is left out: --check counts "
        "it for 1,024",
    ]
    n_inside, n_without = count_eos(source)
    if n_inside or n_without:
        found = []
        if n_inside:
            found.append(f"{plural(n_inside, 'eos token')} inside documents")
        if n_without:
            found.append(f"{plural(n_without, 'document')} without eos at the end")
        notes.append(
            f"{' and '.join(found)}: OLMo-core looks for eos to find documents in local files, and "
            "would find others; use_array_if_local=False, or OLMO_DATA_PREP_USE_ARRAY_IF_LOCAL=0 "
            "in the environment, makes it read .csv.gz"
        )
        if source.kind == "pretrain":
            notes.append("generate_doc_lengths=True of NumpyFSLDatasetConfig always looks for eos")
    if source.kind == "sft":
        notes.append("sequence_length of packed rows is a power of two; longer samples are cut")
    return notes


TRAINER = OlmoCore()
