"""SkyRL: a directory for its `pretokenized_dataset_paths`, with the columns that it asks for.

| column      | holds                                                                  |
|-------------|------------------------------------------------------------------------|
| `input_ids` | the ids of a chat, without padding                                     |
| `loss_mask` | 1 for a target, at the token's own place, of the whole chat            |

SkyRL refuses `labels` and `num_actions`, and packs chats itself.

Source of the layout: SkyRL a956457, skyrl/train/dataset/pretokenized.py. The releases up to 0.3.0
have no such file.
"""

from __future__ import annotations

import json
from shlex import quote
from typing import TYPE_CHECKING

import numpy as np

from tokmill.trainers.hf_datasets import INPUT_IDS, ArrowTrainer, Column, comparing_datasets
from tokmill.trainers.rows import DocumentRows

if TYPE_CHECKING:
    from pathlib import Path

    from tokmill.trainers.hf_datasets import Values
    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.rows import RowBatch
    from tokmill.trainers.trainer import ExportSource


def _loss_mask(batch: RowBatch) -> Values:
    mask = np.ones(len(batch.ids), np.uint8) if batch.mask is None else batch.mask
    return mask, batch.row_offsets


COLUMNS = [INPUT_IDS, Column("loss_mask", "int8", _loss_mask)]


def _usage(source: ExportSource, options: ExportOptions, output: Path, is_packed: bool) -> str:
    """Return overrides of the settings of SkyRL's SFT, one on each line."""
    place = output.absolute()
    if len(source.splits) == 1:
        return _override("pretokenized_dataset_paths", place)
    return "\n".join(
        [
            _override("pretokenized_dataset_paths", place / "train"),
            _override("eval_pretokenized_dataset_paths", place / "val"),
        ]
    )


def _override(name: str, path: Path) -> str:
    """Return a setting as a word of a shell: without quotes, it would take those of the list."""
    return quote(f"{name}={json.dumps([str(path)], ensure_ascii=False)}")


def _notes(source: ExportSource, is_packed: bool) -> list[str]:
    notes = ["SkyRL cuts rows that are longer than its max_length, also inside a reply"]
    if source.packs:
        notes.append("the packs of the dataset are not exported: SkyRL packs chats itself")
    return notes


TRAINER = ArrowTrainer(
    "SkyRL",
    options=frozenset(),
    reader=("datasets",),
    rows=lambda source, split, options: DocumentRows(source, split),
    columns=lambda source, options, is_packed: COLUMNS,
    usage=_usage,
    notes=_notes,
    comparing=comparing_datasets,
    kinds=frozenset({"sft"}),
)
