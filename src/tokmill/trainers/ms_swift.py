"""ms-swift: a directory for its `cached_dataset`, with rows that it takes as they are.

| column         | rows | holds                                                              |
|----------------|------|--------------------------------------------------------------------|
| `input_ids`    | all  | the ids of a document, or of a pack                                |
| `labels`       | all  | the same, -100 where the mask is 0                                 |
| `loss_scale`   | all  | the weight of each token, of a dataset with weights                |
| `position_ids` | pack | counted in each sample: the collator gives its ends to the kernel  |
| `length`       | all  | the tokens of the row                                              |
| `lengths`      | all  | the same as a list of one, as its own preprocessor writes it       |

ms-swift writes tokenized rows itself with `truncation_strategy split` alone, and with that reads
them as they are. With another strategy it would encode each row anew, as messages.

Source of the layout: ms-swift 4.6.0, swift/pipelines/utils.py (`get_cached_dataset`),
swift/pipelines/train/sft.py, swift/dataset/utils.py, swift/dataset/packing.py and
swift/template/base.py (`packing_row`, `_data_collator`).
"""

from __future__ import annotations

import importlib.metadata
from shlex import quote
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.trainers.hf_datasets import (
    INPUT_IDS,
    LABELS,
    WEIGHTS,
    ArrowTrainer,
    Column,
    NumberColumn,
    padding_tokenizer,
)
from tokmill.trainers.rows import check_equal, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tokmill.trainers.hf_datasets import AnyColumn, Comparing, Values
    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.rows import RowBatch, Sample
    from tokmill.trainers.trainer import ExportSource

LOSS_SCALE = Column("loss_scale", "float32", WEIGHTS.values)


def _lengths(batch: RowBatch) -> Values:
    return np.diff(batch.row_offsets), np.arange(len(batch.row_offsets))


POSITION_IDS = Column("position_ids", "int32", lambda batch: (batch.positions, batch.row_offsets))
LENGTH = NumberColumn("length", "int32", lambda batch: np.diff(batch.row_offsets))
LENGTHS = Column("lengths", "int32", _lengths, by_sample=True)


def _columns(source: ExportSource, options: ExportOptions, is_packed: bool) -> list[AnyColumn]:
    columns: list[AnyColumn] = [INPUT_IDS, LABELS]
    if source.has_weights and not options.drop_weights:
        columns.append(LOSS_SCALE)
    if is_packed:
        columns.append(POSITION_IDS)
    return [*columns, LENGTH, LENGTHS]


def folder(output: Path, splits: Sequence[str], split: str) -> Path:
    """Return the folder of a split, which ms-swift loads alone."""
    return output / split if len(splits) > 1 else output


def _usage(source: ExportSource, options: ExportOptions, output: Path, is_packed: bool) -> str:
    """Return options of `swift sft`, one on each line."""
    place = output.absolute()
    train = folder(place, source.splits, "train")
    lines = ["swift sft", "--model MODEL", f"--cached_dataset {quote(str(train))}"]
    if "val" in source.splits and len(source.splits) > 1:
        lines.append(f"--cached_val_dataset {quote(str(place / 'val'))}")
    lines.append("--truncation_strategy split")
    if is_packed:
        lines += [
            "--padding_free true",
            "--attn_impl flash_attn",
            "--per_device_train_batch_size 1",
        ]
    return " \\\n  ".join(lines)


def _notes(source: ExportSource, is_packed: bool) -> list[str]:
    notes = [
        "with --truncation_strategy split alone, ms-swift takes rows that are tokenized; with "
        "another one it looks for messages in them, and fails"
    ]
    if source.kind != "sft" and not is_packed:
        notes.append(
            "ms-swift does not cut these rows, each of which is a document of any length: "
            "tokmill pack makes rows of one length"
        )
    return notes


def _load(output: Path, splits: Sequence[str], split: str) -> Any:
    """Return the rows of a split as ms-swift's own loader does."""
    from swift.pipelines.utils import get_cached_dataset

    asked = SimpleNamespace(
        cached_dataset=[str(folder(output, splits, split))],
        cached_val_dataset=[],
        data_seed=0,
        max_length=1,
        truncation_strategy="split",
    )
    (found,), _ = get_cached_dataset(asked)
    return found


def _comparing(columns: Sequence[AnyColumn]) -> Comparing:
    """Compare what is stored, and what the collator for rows without padding makes of it."""
    names = {column.name for column in columns}
    collate = _collator()

    def compare(row: Any, samples: Sequence[Sample], where: str) -> None:
        lengths = [len(sample.ids) for sample in samples]
        n_tokens = np.array([sum(lengths)])
        check_equal(np.array([row["length"]]), n_tokens, where, "length")
        check_equal(row["lengths"], n_tokens, where, "lengths")
        batch = collate([dict(row)])
        expected = {
            "input_ids": np.concatenate([sample.ids for sample in samples]),
            "labels": np.concatenate([sample.labels for sample in samples]),
            "position_ids": np.concatenate([np.arange(n) for n in lengths]),
        }
        if LOSS_SCALE.name in names:
            weights = [sample.weights for sample in samples if sample.weights is not None]
            expected[LOSS_SCALE.name] = np.concatenate(weights)
        for name, values in expected.items():
            check_equal(batch[name][0].numpy(), values, where, name)

    return f"ms-swift {importlib.metadata.version('ms-swift')}", compare


def _collator() -> Callable[[list[Any]], Any]:
    """Return the collator of a template that only pads, as `padding_free true` sets it."""
    from swift.template.base import Template

    settings = {
        "__init__": lambda self: None,
        "tokenizer": padding_tokenizer(),
        "is_training": True,
        "mode": "train",
        "task_type": "causal_lm",
        "packing": False,
        "padding_free": True,
        "padding_side": "right",
        "remove_unused_columns": True,
        "sequence_parallel_size": 1,
        "use_megatron": False,
    }
    template = type("PaddingTemplate", (Template,), settings)()
    found: Callable[[list[Any]], Any] = template.data_collator
    return found


TRAINER = ArrowTrainer(
    "ms-swift",
    options=frozenset({"packing", "unpacked"}),
    reader=("ms-swift", "datasets", "transformers"),
    rows=rows_of,
    columns=_columns,
    usage=_usage,
    notes=_notes,
    comparing=_comparing,
    load=_load,
)
