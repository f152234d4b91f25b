"""LLaMA-Factory: a directory for its `tokenized_path`, in the columns of its own processors.

| rows            | columns                                                                       |
|-----------------|-------------------------------------------------------------------------------|
| documents       | `input_ids`, `attention_mask` of ones, `labels`                               |
| packs           | the same, `position_ids` and `packing_params`, as with `neat_packing: true`   |

In a pack, `attention_mask` numbers the samples from 1 on, and is 0 in the padding; `position_ids`
count in each sample, and are 0 in the padding. `packing_params` has the ends of samples and of the
padding, and one number for each kind of media, which stands for none. Every row is padded by a
token or more: FlashAttention would drop a mask without zeros. Rows have a multiple of 8 tokens,
to which the collator would pad them without their positions.

Source of the layout: LLaMA-Factory 0.9.5, src/llamafactory/data/loader.py (`get_dataset`),
data_utils.py, processor/supervised.py, collator.py, hparams/parser.py and data_args.py.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.trainers.hf_datasets import (
    AXOLOTL_COLUMNS,
    INPUT_IDS,
    LABELS,
    ArrowTrainer,
    Column,
    NumberColumn,
    StructColumn,
    padding_tokenizer,
)
from tokmill.trainers.rows import PackedRows, PaddedRows, check_equal, rows_of
from tokmill.trainers.trainer import padded, yaml_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokmill.trainers.hf_datasets import AnyColumn, Comparing, Values
    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.rows import RowBatch, Rows, Sample
    from tokmill.trainers.trainer import ExportSource

NO_MEDIA = 1 << 32
"""What stands in `packing_params` in place of the numbers of the samples that have media."""

_MULTIPLE = 8
"""The collator pads rows to a multiple of so many tokens."""


def _rows(source: ExportSource, split: str, options: ExportOptions) -> Rows:
    rows = rows_of(source, split, options)
    if not isinstance(rows, PackedRows):
        return rows
    return PaddedRows(source, split, rows.packs, row_tokens(source, options), source.eos_id)


def row_tokens(source: ExportSource, options: ExportOptions) -> int:
    """Return the tokens of a row, padding included, of packs."""
    capacity = options.packing
    if not capacity:
        capacity = max(pack.capacity for pack in source.manifest.packs.values())
    return padded(capacity + 1, _MULTIPLE)


def _sample_numbers(batch: RowBatch) -> Values:
    """Return the number in its row of each token's sample, from 1 on; 0 in padding."""
    counts = np.diff(batch.row_samples)
    numbers = np.arange(1, counts.sum() + 1) - np.repeat(batch.row_samples[:-1], counts)
    numbers[batch.row_samples[1:] - 1] = 0
    return np.repeat(numbers, batch.sample_lengths), batch.row_offsets


def _positions(batch: RowBatch) -> Values:
    numbers, offsets = _sample_numbers(batch)
    return np.where(numbers > 0, batch.positions, 0), offsets


def _boundaries(batch: RowBatch) -> Values:
    """Return 0 and the ends of the samples and of the padding of each row."""
    row_of_sample = np.repeat(np.arange(len(batch.row_samples) - 1), np.diff(batch.row_samples))
    ends = batch.sample_starts + batch.sample_lengths - batch.row_offsets[row_of_sample]
    offsets = batch.row_samples + np.arange(len(batch.row_samples))
    return np.insert(ends, batch.row_samples[:-1], 0), offsets


def _no_media(batch: RowBatch) -> Values:
    n_rows = len(batch.row_offsets) - 1
    return np.full(n_rows, NO_MEDIA), np.arange(n_rows + 1)


def _padding(batch: RowBatch) -> npt.NDArray[np.int64]:
    return batch.sample_lengths[batch.row_samples[1:] - 1]


PACKED_COLUMNS: Sequence[AnyColumn] = [
    INPUT_IDS,
    Column("attention_mask", "int32", _sample_numbers),
    Column("position_ids", "int32", _positions),
    LABELS,
    StructColumn(
        "packing_params",
        [
            Column("sequence_boundaries", "int64", _boundaries),
            Column("image_subseq_ids", "int64", _no_media),
            Column("video_subseq_ids", "int64", _no_media),
            Column("audio_subseq_ids", "int64", _no_media),
            NumberColumn("right_padding_length", "int64", _padding),
        ],
    ),
]


def _usage(source: ExportSource, options: ExportOptions, output: Path, is_packed: bool) -> str:
    """Return lines of LLaMA-Factory's YAML; it asks for names of datasets, which it never opens."""
    lines = ["stage: sft", "do_train: true", "dataset: tokmill"]
    if "val" in source.splits:
        lines.append("eval_dataset: tokmill")
    lines.append(f"tokenized_path: {yaml_text(str(output.absolute()))}")
    if is_packed:
        lines += [
            f"cutoff_len: {row_tokens(source, options)}",
            "packing: true",
            "neat_packing: true",
            "flash_attn: fa2",
            "per_device_train_batch_size: 1",
        ]
    else:
        lines += ["packing: false"]
    return "\n".join(lines)


def _notes(source: ExportSource, is_packed: bool) -> list[str]:
    notes = [
        "LLaMA-Factory does not open the datasets that dataset: and eval_dataset: name, but stops "
        "without these lines"
    ]
    if is_packed:
        notes.append("without neat_packing: true, the samples of a pack read each other")
    elif source.kind != "sft":
        notes.append(
            "LLaMA-Factory does not cut these rows, each of which is a document of any length: "
            "tokmill pack makes rows of one length"
        )
    return notes


def _load(output: Path, splits: Sequence[str], split: str) -> Any:
    """Return the rows of a split as LLaMA-Factory's own loader does."""
    with without_torchaudio():
        from llamafactory.data.loader import get_dataset

    asked = SimpleNamespace(tokenized_path=str(output), streaming=False)
    found = get_dataset(None, None, asked, None, "sft", None)
    is_eval = split == "val" and len(splits) > 1
    return found["eval_dataset" if is_eval else "train_dataset"]


def _comparing(columns: Sequence[AnyColumn]) -> Comparing:
    """Compare what is stored, and what the collator for `stage: sft` makes of it."""
    with without_torchaudio():
        from llamafactory.data.collator import SFTDataCollatorWith4DAttentionMask
        from llamafactory.data.template import TEMPLATES

    is_packed = any(one.name == "packing_params" for one in columns)
    collate = SFTDataCollatorWith4DAttentionMask(
        tokenizer=padding_tokenizer(),
        template=TEMPLATES["empty"],
        pad_to_multiple_of=_MULTIPLE,
        neat_packing=is_packed,
        block_diag_attn=is_packed,
        attn_implementation="flash_attention_2",
    )

    def compare(row: Any, samples: Sequence[Sample], where: str) -> None:
        if is_packed:
            _compare_pack(row, samples, where)
        batch = collate([dict(row)])
        lengths = [len(sample.ids) for sample in samples]
        expected = {
            "input_ids": np.concatenate([sample.ids for sample in samples]),
            "labels": np.concatenate([sample.labels for sample in samples]),
        }
        if is_packed:
            expected["position_ids"] = np.concatenate([np.arange(n) for n in lengths])
        else:
            expected["attention_mask"] = np.ones(sum(lengths), np.int64)
        n_kept = sum(lengths) if not is_packed else None
        for name, values in expected.items():
            check_equal(batch[name][0].numpy()[:n_kept], values, where, name)

    return f"llamafactory {importlib.metadata.version('llamafactory')}", compare


def _compare_pack(row: Any, samples: Sequence[Sample], where: str) -> None:
    """Compare the numbers and ends of samples of a row, and that the rest is padding."""
    lengths = [len(sample.ids) for sample in samples]
    n_padding = len(row["input_ids"]) - sum(lengths)
    numbers = [np.full(n, number) for number, n in enumerate(lengths, 1)]
    mask = np.concatenate([*numbers, np.zeros(n_padding, np.int64)])
    check_equal(row["attention_mask"], mask, where, "attention_mask")
    ends = np.cumsum([0, *lengths, n_padding])
    params = row["packing_params"]
    check_equal(params["sequence_boundaries"], ends, where, "sequence_boundaries")
    n_given = np.array([params["right_padding_length"]])
    check_equal(n_given, np.array([n_padding]), where, "right_padding_length")


@contextlib.contextmanager
def without_torchaudio() -> Iterator[None]:
    """Let LLaMA-Factory be imported where torchaudio is missing: it needs that for sounds alone."""
    if importlib.util.find_spec("torchaudio") is not None:
        yield
        return
    stand_in = ModuleType("torchaudio")
    stand_in.__spec__ = importlib.machinery.ModuleSpec("torchaudio", None)
    sys.modules["torchaudio"] = stand_in
    try:
        yield
    finally:
        del sys.modules["torchaudio"]


TRAINER = ArrowTrainer(
    "LLaMA-Factory",
    options=frozenset({"packing", "unpacked"}),
    reader=("llamafactory", "datasets", "transformers", "peft"),
    rows=_rows,
    columns=lambda source, options, is_packed: PACKED_COLUMNS if is_packed else AXOLOTL_COLUMNS,
    usage=_usage,
    notes=_notes,
    comparing=_comparing,
    val="validation",
    load=_load,
)
