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

import contextlib
import importlib
import importlib.metadata
import importlib.util
import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from tokmill.dataset.packing import Packs
from tokmill.dataset.packs import sample_lengths
from tokmill.errors import UsageError
from tokmill.trainers.rows import (
    BATCH_TOKENS,
    PackedRows,
    RowBatch,
    check_equal,
    check_packing,
    check_rows,
    lengths_in,
    packed,
)
from tokmill.trainers.trainer import Checked, Layout, Written, padded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.rows import Sample
    from tokmill.trainers.trainer import ExportSource

_PARQUET_MODULES = (
    "megatron.bridge.data.packing.parquet",
    "megatron.bridge.data.datasets.packed_parquet",
)

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
        plans = {split: _plan(source, split, options) for split in source.splits}
        eos_id, multiple = source.eos_id, options.pad_samples_to

        def compare(row: tuple[Any, Any], samples: Sequence[Sample], where: str) -> None:
            padded_samples = [_padded(one, eos_id, multiple) for one in samples]
            _compare_row(row[0], padded_samples, where)
            _compare_batch(row[1]([row[0]]), padded_samples, eos_id, where)

        with _only_modules():
            return check_rows(
                source, [plan.rows for plan in plans.values()], output,
                lambda split: _Read(output / f"{split}.idx.parquet", plans[split]), compare,
                f"megatron-bridge {importlib.metadata.version('megatron-bridge')}",
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Plan:
    """The packs of a split. `capacity`: tokens of a row.

    `used`: (n_samples,) tokens that samples take in a row, in the order of the packs.
    """

    rows: PackedRows
    capacity: int
    multiple: int
    pad_id: int
    used: npt.NDArray[np.int64]

    def file(self) -> Written:
        """Return the Parquet file; its size counts every token with 6 bytes, before compression."""
        n_tokens = int(self.used.sum()) + self.rows.n_samples
        n_groups = 2 * n_tokens // ROW_GROUP_TOKENS + 2
        n_bytes = 6 * n_tokens + 5 * self.rows.n_samples + 2048 * n_groups + 4096
        return Written(f"{self.rows.split}.idx.parquet", n_bytes, partial(_write, self))

    def metadata(self) -> dict[str, int | float]:
        """Return what Megatron-Bridge records of packs; it reads it to pad `cu_seqlens`."""
        offsets = np.asarray(self.rows.packs.row_offsets)
        sums = np.add.reduceat(self.used, offsets[:-1])  # tokens that the reader makes of each row
        return {
            "dataset_max_seqlen": int(self.used.max()),
            "max_samples_per_bin": int(np.diff(offsets).max()),
            "packing_factor": round(len(self.used) / len(sums), 2),
            "packing_efficiency": round(float(sums.mean()) / self.capacity * 100, 2),
            "pack_size": self.capacity,
            "min_packed_seqlen": int(sums.min()),
        }


def _plan(source: ExportSource, split: str, options: ExportOptions) -> _Plan:
    check_packing(source, options)
    multiple, capacity = options.pad_samples_to, options.packing
    if not capacity and split not in source.packs:
        how = f"run tokmill pack {quote(str(source.directory))} --length 4096 first"
        if source.kind == "sft":
            how = "add --packing with the tokens of a row, such as --packing 4096"
        raise UsageError(
            f"{source.where}: Megatron-Bridge reads packs, and {split} has none: {how}"
        )
    capacity = capacity or source.manifest.packs[split].capacity
    if capacity % multiple:
        raise UsageError(
            f"--pad-samples-to {multiple}: rows of {capacity} tokens are no multiple of it: "
            "choose another --packing"
        )
    packs = _packs(source, split, capacity, options)
    if not packs.n_rows:
        raise UsageError(
            f"{source.where}: all documents of {split} are single tokens, which train nothing"
        )
    used = padded(lengths_in(source, split, packs).astype(np.int64) - 1, multiple)
    return _Plan(PackedRows(source, split, packs), capacity, multiple, source.eos_id, used)


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


_Padded = tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]
"""The ids of a sample and what is trained of it, with its padding."""


def _compare_row(row: dict[str, Any], padded: Sequence[_Padded], where: str) -> None:
    """Compare what is stored: the mask stands one token before the target that it is about."""
    check_equal(row["input_ids"], np.concatenate([ids for ids, _ in padded]), where, "input_ids")
    mask = np.concatenate([np.append(is_trained[1:], False) for _, is_trained in padded])
    check_equal(row["loss_mask"], mask.astype(np.int64), where, "loss_mask")
    stops = np.cumsum([0, *(len(ids) for ids, _ in padded)])
    check_equal(row["seq_boundaries"], stops, where, "seq_boundaries")


def _compare_batch(
    batch: dict[str, Any], padded: Sequence[_Padded], eos_id: int, where: str
) -> None:
    """Compare what the collator returned: inputs `[:-1]` and labels `[1:]` of every sample."""
    tokens = np.concatenate([ids[:-1] for ids, _ in padded])
    labels = np.concatenate([ids[1:] for ids, _ in padded])
    mask = np.concatenate([is_trained[1:] for _, is_trained in padded])
    n = len(tokens)
    found = {name: batch[name][0].numpy() for name in ("tokens", "labels", "loss_mask")}
    check_equal(found["tokens"][:n], tokens, where, "tokens")
    check_equal(found["labels"][:n], labels, where, "labels")
    if not np.array_equal(found["loss_mask"][:n], mask):
        mask = mask & (tokens != eos_id)  # 0.3.1 trains nothing where the INPUT is eos
    check_equal(found["loss_mask"][:n], mask.astype(np.int64), where, "loss_mask")
    check_equal(found["loss_mask"][n:], np.zeros(len(found["loss_mask"]) - n), where, "padding")
    positions = np.concatenate([np.arange(len(ids) - 1) for ids, _ in padded])
    check_equal(batch["position_ids"][0].numpy()[:n], positions, where, "position_ids")
    ends = np.cumsum([0, *(len(ids) - 1 for ids, _ in padded)])
    name = next(name for name in _BOUNDARIES if name in batch)
    check_equal(batch[name].reshape(-1).numpy()[: len(ends)], ends, where, name)


def _padded(sample: Sample, eos_id: int, multiple: int) -> _Padded:
    n_pad = -(len(sample.ids) - 1) % multiple
    ids = np.concatenate([sample.ids, np.full(n_pad, eos_id, np.int64)])
    return ids, np.concatenate([sample.is_trained, np.zeros(n_pad, bool)])


_BOUNDARIES = ("cu_seqlens_q_padded", "cu_seqlens_q", "cu_seqlens")
"""Names of the ends of samples with their padding; the last is that of 0.5 and before."""


class _Read:
    """The rows of a Parquet file as Megatron-Bridge returns them, each with its collator.

    Versions without a Parquet reader have the collator: they get all rows from pyarrow.
    """

    def __init__(self, path: Path, plan: _Plan) -> None:
        settings = {
            "file_path": str(path),
            "tokenizer": SimpleNamespace(eos_id=plan.pad_id, eod=plan.pad_id),
            "max_seq_length": plan.capacity,
            "pad_seq_to_mult": plan.multiple,
            # Required and unused for packs; these are the values of Megatron-Bridge's own builder.
            "prompt_template": "{input} {output}",
            "label_key": "output",
            "truncation_field": "input",
        }
        for name in _PARQUET_MODULES:
            with contextlib.suppress(ModuleNotFoundError):
                self._rows = importlib.import_module(name).GPTSFTPackedParquetDataset(**settings)
                return
        import pyarrow.parquet as pq

        base: Any = importlib.import_module("megatron.bridge.data.datasets.sft")

        def load(dataset: Any) -> None:
            dataset.indexed_dataset = pq.read_table(path).to_pylist()

        members = {"_load_dataset": load, "__len__": lambda self: len(self.indexed_dataset)}
        self._rows = type("WithRows", (base.GPTSFTPackedDataset,), members)(**settings)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> tuple[Any, Any]:
        """Return a row, and the collator of rows."""
        return self._rows[row], self._rows.collate_fn


@contextlib.contextmanager
def _only_modules() -> Iterator[None]:
    """Import modules of Megatron-Bridge without its packages' own code, unless it was imported.

    Its packed dataset and collator need torch and megatron-core alone, but the packages around them
    import TransformerEngine, which needs a GPU build.
    """
    if "megatron.bridge" in sys.modules:
        yield
        return
    spec = importlib.util.find_spec("megatron.bridge")
    for place in (spec and spec.submodule_search_locations) or ():
        for folder in (Path(place), *(path for path in Path(place).rglob("*") if path.is_dir())):
            name = ".".join(["megatron.bridge", *folder.relative_to(place).parts])
            package = sys.modules[name] = ModuleType(name)
            package.__path__ = [str(folder)]
    try:
        yield
    finally:
        for name in [one for one in sys.modules if f"{one}.".startswith("megatron.bridge.")]:
            del sys.modules[name]


TRAINER = MegatronBridge()
