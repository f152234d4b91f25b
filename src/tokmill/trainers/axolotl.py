"""axolotl: a directory of `datasets` with exactly `input_ids`, `attention_mask` and `labels`.

axolotl takes a dataset with these columns as tokenized, and packs it when it loads it. So packs for
pretraining become a row for each piece of a document: none is longer than a row. The types
are those of its own datasets, int32, int8 and int64: datasets of other types cannot be merged.

Source of the layout: axolotl, utils/data/shared.py (`load_dataset_with_config`), utils/data/sft.py,
utils/data/wrappers.py (`_is_dataset_already_tokenized`), utils/collators/batching.py.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.errors import UsageError
from tokmill.trainers.checks.compare_rows import check_columns, check_count, compared, expected_rows
from tokmill.trainers.hf_datasets import loaded
from tokmill.trainers.layouts.arrow_directory import INPUT_IDS, Column, arrow_files, labels, ones
from tokmill.trainers.layouts.rows import DocumentRows, PackedRows, Rows
from tokmill.trainers.trainer import Checked, Layout

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.source import ExportSource

COLUMNS = (INPUT_IDS, Column("attention_mask", "int8", ones), Column("labels", "int64", labels))


class Axolotl:
    """axolotl, with a row for each document, or for each piece of one that was cut."""

    title = "axolotl"
    kinds = frozenset({"pretrain", "sft"})
    options: frozenset[str] = frozenset()
    reader: tuple[str, ...] = ("axolotl", "datasets", "transformers")

    def layout(self, source: ExportSource, options: ExportOptions, output: Path) -> Layout:
        """Return the files of the directory; see `Trainer.layout`."""
        rows = [_rows(source, split) for split in source.splits]
        notes = [
            "axolotl drops rows longer than its sequence_len, unless excess_length_strategy is set"
        ]
        alignment = "target" if source.kind == "sft" else ""
        return Layout(arrow_files(source, rows, COLUMNS), _usage(source, output), alignment, notes)

    def check(self, source: ExportSource, options: ExportOptions, output: Path) -> Checked:
        """Compare every row as axolotl's collator for packing returns it; see `Trainer.check`."""
        collate, splits = _collator(), [_rows(source, split) for split in source.splits]
        for rows in splits:
            found = loaded(output, rows.split)
            check_count(len(found), rows, str(output))
            for i, samples in enumerate(expected_rows(source, rows)):
                batch, where = collate([[found[i]]]), f"{output}: row {i} of {rows.split}"
                own = {column.name: batch[column.name][0].numpy() for column in COLUMNS}
                check_columns(own, samples, where)
        version = importlib.metadata.version("axolotl")
        return Checked(f"axolotl {version}", compared(splits))


def _rows(source: ExportSource, split: str) -> Rows:
    """Return a row for each piece of documents that are cut, in the order of their packs."""
    packs = source.packs.get(split)
    if packs is None or packs.pieces is None:
        return DocumentRows(source, split)
    rows = np.arange(len(packs.samples) + 1)
    return PackedRows(source, split, replace(packs, row_offsets=rows))


def _usage(source: ExportSource, output: Path) -> str:
    """Return lines of axolotl's YAML; an empty `type:` says that the rows are tokenized."""
    path = _yaml_text(str(output.absolute()))
    lines = ["datasets:", f"  - path: {path}", "    split: train", "    type:"]
    if "val" in source.splits:
        lines += ["test_datasets:", f"  - path: {path}", "    split: val", "    type:"]
    packs = source.manifest.get("packs", {}) if source.kind == "pretrain" else {}
    length = max((entry["capacity"] for entry in packs.values()), default=4096)
    return "\n".join([*lines, f"sequence_len: {length}", "sample_packing: true"])


def _yaml_text(text: str) -> str:
    """Return a text as YAML; in quotes, if it has characters with a meaning in YAML."""
    return text if re.fullmatch(r"[A-Za-z0-9/._-]+", text) else json.dumps(text, ensure_ascii=False)


def _collator() -> Callable[[Any], Any]:
    """Return axolotl's collator for packed rows, with a tokenizer that only pads."""
    try:
        from axolotl.utils.collators.batching import V2BatchSamplerDataCollatorForSeq2Seq
    except ImportError as error:
        raise UsageError(f"--check: axolotl cannot be imported: {error}") from None
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    pad = "<pad>"
    words = Tokenizer(WordLevel({pad: 0}, unk_token=pad))
    padding = PreTrainedTokenizerFast(tokenizer_object=words, pad_token=pad)
    found: Callable[[Any], Any] = V2BatchSamplerDataCollatorForSeq2Seq(tokenizer=padding)
    return found


TRAINER = Axolotl()
