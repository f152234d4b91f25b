"""Megatron-Bridge and NeMo: packs as Parquet, `train.idx.parquet` and `val.idx.parquet`.

| column         | type        | holds                                                     |
|----------------|-------------|-----------------------------------------------------------|
| `input_ids`    | list<int32> | the samples of a pack end to end, each padded with eos     |
| `loss_mask`    | list<int8>  | 1 where the NEXT token of the same sample is a target      |
| `seq_start_id` | list<int32> | the token where each sample begins                        |

The collator feeds `sample[:-1]` and trains `sample[1:]`, so a sample of n tokens takes n - 1 of a
row, and `pad_samples_to` makes that a multiple. Of packs for pretraining, samples are pieces of
documents; those of one token, which train nothing, are left out.

Source of the layout: Megatron-Bridge, data/packing/parquet.py, gpt_sft.py, offline.py and
algorithms.py (in 0.5: data/datasets/packed_parquet.py and sft.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from tokmill.dataset.packing import Packs
from tokmill.dataset.packs import sample_lengths
from tokmill.errors import UsageError
from tokmill.trainers.checks.megatron_bridge import check_rows
from tokmill.trainers.layouts.rows import (
    BATCH_TOKENS,
    PackedRows,
    RowBatch,
    check_packing,
    lengths_in,
    packed,
)
from tokmill.trainers.padding import padded
from tokmill.trainers.trainer import Checked, Layout, Written

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.source import ExportSource

ROW_GROUP_TOKENS = 1 << 18
"""Tokens of a row group. The reader decodes a whole group to return one of its rows."""


class MegatronBridge:
    """Packed sequences of Megatron-Bridge, and of NeMo on top of it."""

    title = "Megatron-Bridge"
    kinds = frozenset({"pretrain", "sft"})
    options = frozenset({"packing", "pad_samples_to"})
    reader: tuple[str, ...] = ("megatron-bridge", "torch")

    def layout(self, source: ExportSource, options: ExportOptions, output: Path) -> Layout:
        """Return a Parquet file for each split, and their `metadata.json`; see `Trainer.layout`."""
        plans = [_plan(source, split, options) for split in source.splits]
        files = [plan.file() for plan in plans]
        metadata = json.dumps([plan.metadata() for plan in plans], indent=1).encode()
        files.append(Written.of("metadata.json", metadata))
        notes = ["Megatron-Bridge reads packs as Parquet since 0.4.0; 0.3.1 does not"]
        return Layout(files, _usage(plans, output), "predictor", notes)

    def check(self, source: ExportSource, options: ExportOptions, output: Path) -> Checked:
        """Compare every row as Megatron-Bridge's collator returns it; see `Trainer.check`."""
        plans = [_plan(source, split, options) for split in source.splits]
        return check_rows(source, [plan.rows for plan in plans], plans[0].capacity, options, output)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The packs of a split. `capacity`: tokens of a row.

    `used`: (n_samples,) tokens that samples take in a row, in the order of the packs.
    """

    rows: PackedRows
    packs: Packs
    capacity: int
    multiple: int
    pad_id: int
    used: npt.NDArray[np.int64]

    def row_sums(self) -> npt.NDArray[np.int64]:
        """Return the tokens that the reader makes of each row: (n_rows,)."""
        return np.add.reduceat(self.used, np.asarray(self.packs.row_offsets[:-1]))

    def file(self) -> Written:
        """Return the Parquet file; its size counts every token with 6 bytes, before compression."""
        n_tokens = int(self.used.sum()) + self.rows.n_samples
        n_groups = 2 * n_tokens // ROW_GROUP_TOKENS + 2
        n_bytes = 6 * n_tokens + 5 * self.rows.n_samples + 2048 * n_groups + 4096
        return Written(f"{self.rows.split}.idx.parquet", n_bytes, partial(_write, self))

    def metadata(self) -> dict[str, int | float]:
        """Return what Megatron-Bridge records of packs; it reads it to pad `cu_seqlens`."""
        sums = self.row_sums()
        return {
            "dataset_max_seqlen": int(self.used.max()),
            "max_samples_per_bin": int(np.diff(self.packs.row_offsets).max()),
            "packing_factor": round(len(self.used) / len(sums), 2),
            "packing_efficiency": round(float(sums.mean()) / self.capacity * 100, 2),
            "pack_size": self.capacity,
            "min_packed_seqlen": int(sums.min()),
        }


def _plan(source: ExportSource, split: str, options: ExportOptions) -> _Plan:
    check_packing(source, options)
    multiple, capacity = options.pad_samples_to, options.packing
    if not capacity and split not in source.packs:
        how = f"run tokmill pack {source.directory} --length 4096 first"
        if source.kind == "sft":
            how = "add --packing with the tokens of a row, such as --packing 4096"
        raise UsageError(
            f"{source.directory}: Megatron-Bridge reads packs, and {split} has none: {how}"
        )
    capacity = capacity or int(source.manifest["packs"][split]["capacity"])
    if capacity % multiple:
        raise UsageError(
            f"--pad-samples-to {multiple}: rows of {capacity} tokens are no multiple of it: "
            "choose another --packing"
        )
    if source.eos_id is None:
        raise UsageError(
            f"{source.directory}: Megatron-Bridge pads with eos, and this tokenizer has none"
        )
    packs = _packs(source, split, capacity, options)
    used = padded(lengths_in(source, split, packs).astype(np.int64) - 1, multiple)
    rows = PackedRows(source, split, packs)
    return _Plan(rows, packs, capacity, multiple, source.eos_id, used)


def _packs(source: ExportSource, split: str, capacity: int, options: ExportOptions) -> Packs:
    """Return the packs of the dataset, or new ones of its samples if their lengths in rows differ.

    Raises:
        UsageError: a sample is longer than a row.
    """
    multiple, packs = options.pad_samples_to, source.packs.get(split)
    is_new = packs is None or options.packing or multiple > 1
    if packs is None or packs.pieces is None:
        if packs is not None and not is_new:
            return packs
        lengths = sample_lengths(source.directory, source.entries(split), split)
        return packed(padded(lengths.astype(np.int64) - 1, multiple), capacity, source)
    places = np.flatnonzero(packs.pieces[:, 1] > 1)
    offsets = np.unique(np.searchsorted(places, packs.row_offsets))
    if is_new:
        lengths = packs.pieces[places, 1].astype(np.int64)
        made = packed(padded(lengths - 1, multiple), capacity, source)
        places, offsets = places[made.samples], made.row_offsets
    return Packs(offsets, packs.samples[places], packs.pieces[places])


def _write(plan: _Plan, file: BinaryIO) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        {
            "input_ids": pa.list_(pa.int32()),
            "loss_mask": pa.list_(pa.int8()),
            "seq_start_id": pa.list_(pa.int32()),
        }
    )
    group_rows = max(1, min(BATCH_TOKENS, ROW_GROUP_TOKENS) // plan.capacity)
    with pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=False) as writer:
        for batch in _groups(plan.rows, group_rows):
            writer.write_batch(_record_batch(plan, batch, schema))


def _groups(rows: PackedRows, n_rows: int) -> Iterator[RowBatch]:
    for start in range(0, rows.n_rows, n_rows):
        yield from rows.batches(start, min(start + n_rows, rows.n_rows))


def _record_batch(plan: _Plan, batch: RowBatch, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    starts = batch.sample_starts
    sizes = 1 + padded(batch.sample_lengths - 1, plan.multiple)
    new_starts = np.cumsum(sizes) - sizes
    places = np.arange(len(batch.ids)) + np.repeat(new_starts - starts, batch.sample_lengths)
    n_tokens = int(sizes.sum())
    ids = np.full(n_tokens, plan.pad_id, np.int32)
    ids[places] = batch.ids
    mask = np.zeros(n_tokens, np.int8)
    mask[places] = predictor_mask(batch)
    row_tokens = np.append(new_starts, n_tokens)[batch.row_samples]
    seq_starts = new_starts - np.repeat(row_tokens[:-1], np.diff(batch.row_samples))
    columns = [(ids, row_tokens), (mask, row_tokens), (seq_starts, batch.row_samples)]
    arrays = [
        pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values, kind.value_type))
        for (values, offsets), kind in zip(columns, schema.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def predictor_mask(batch: RowBatch) -> npt.NDArray[np.int8]:
    """Return 1 where the next token of the same sample is a target; 0 at its last token."""
    if batch.mask is None:
        raise TypeError("whole documents of pretraining have no mask")
    shifted = np.zeros(len(batch.mask), np.int8)
    shifted[:-1] = batch.mask[1:]
    shifted[batch.sample_starts + batch.sample_lengths - 1] = 0
    return shifted


def _usage(plans: Sequence[_Plan], output: Path) -> str:
    plan = plans[0]

    def quoted(name: str = "") -> str:
        return json.dumps(str(output.absolute() / name), ensure_ascii=False)

    paths = [f"        packed_train_data_path={quoted('train.idx.parquet')},"]
    has_val = any(one.rows.split == "val" for one in plans)
    if has_val:
        paths.append(f"        packed_val_data_path={quoted('val.idx.parquet')},")
    return "\n".join(
        [
            "from megatron.bridge.data.builders import GPTSFTDatasetConfig",
            "from megatron.bridge.data.packing import PackedSequenceSpecs",
            "",
            "dataset = GPTSFTDatasetConfig(",
            f"    dataset_root={quoted()},",
            f"    seq_length={plan.capacity},",
            f"    do_validation={has_val},",
            "    do_test=False,",
            "    enable_offline_packing=True,",
            "    offline_packing_specs=PackedSequenceSpecs(",
            f"        packed_sequence_size={plan.capacity},",
            *paths,
            f"        packed_metadata_path={quoted('metadata.json')},",
            f"        pad_seq_to_mult={plan.multiple},",
            "    ),",
            ")  # and micro_batch_size=1",
        ]
    )


TRAINER = MegatronBridge()
