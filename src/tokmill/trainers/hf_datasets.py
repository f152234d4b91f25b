"""Directories of Hugging Face `datasets`, for everything that opens one, TRL and axolotl.

They are written with Arrow alone, and are what `load_from_disk` reads. One split:
`data-00000-of-0000N.arrow`, `dataset_info.json`, `state.json`. Several: such a folder for each
split, and `dataset_dict.json`. An `.arrow` file is an Arrow IPC stream.

| trainer  | rows                         | columns                                           |
|----------|------------------------------|---------------------------------------------------|
| datasets | documents; packs of text     | `input_ids`; `labels` but for documents of text;  |
|          |                              | `seq_lengths` of packs; `weights`; kept strings   |
| trl      | documents, or packs          | `input_ids`; `labels` of chats; `seq_lengths` too |
| axolotl  | documents; pieces of packs   | `input_ids`, `attention_mask`, `labels`           |

`labels` are -100 where the mask is 0 and at the first token of each piece, at the token's own
place; `seq_lengths` the tokens of each sample, or piece, of a row; `weights` float32, with weights
other than 0 and 1. TRL gets no `attention_mask`: one of all ones hides the ends of samples from
FlashAttention. axolotl takes a dataset with exactly its columns as tokenized, and packs it when it
loads it, so none of its rows is longer than a piece; the types are those of its own datasets,
int32, int8 and int64, since datasets of other types cannot be merged.

Sources of the layout: datasets, arrow_dataset.py (`save_to_disk`, `load_from_disk`) and
dataset_dict.py; TRL, trainer/sft_trainer.py (`SFTTrainer.__init__`,
`DataCollatorForLanguageModeling`); axolotl, utils/data/shared.py (`load_dataset_with_config`),
utils/data/sft.py, utils/data/wrappers.py (`_is_dataset_already_tokenized`),
utils/collators/batching.py.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from tokmill.dataset.sidecars import METADATA
from tokmill.errors import UsageError, VerifyError
from tokmill.trainers.rows import (
    BATCH_TOKENS,
    DocumentRows,
    PackedRows,
    RowBatch,
    Rows,
    check_columns,
    check_equal,
    check_rows,
    rows_of,
)
from tokmill.trainers.trainer import Checked, Layout, Written, yaml_text

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.rows import Sample
    from tokmill.trainers.trainer import ExportSource

    Values = tuple[npt.NDArray[Any], npt.NDArray[np.int64]]
    """The values of some rows, and the offsets of the rows in them."""

    Comparing = tuple[str, Callable[[Any, Sequence[Sample], str], None]]
    """The name and version of a reader, and what compares a row, as `check_rows` takes it."""

FILE_BYTES = 500_000_000
"""About the bytes of a file: the size at which `datasets` begins the next one."""

IGNORE_INDEX = -100
"""The label of a token that is no target, in PyTorch's losses."""

_MOST_ID = (1 << 31) - 1

_WEIGHTS = ("weights", "loss_scale")
"""Names of columns that hold the weights of tokens in the loss."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of lists of numbers.

    `by_sample`: it has a value for each sample, not for each token.
    """

    name: str
    dtype: str
    values: Callable[[RowBatch], Values]
    by_sample: bool = False

    @property
    def type(self) -> pa.DataType:
        """Return its type in Arrow."""
        import pyarrow as pa

        return pa.list_(pa.type_for_alias(self.dtype))

    def array(self, batch: RowBatch) -> pa.Array:
        """Return it for some rows. Offsets count within the batch, so int32 is enough."""
        import pyarrow as pa

        values, offsets = self.values(batch)
        return pa.ListArray.from_arrays(
            pa.array(offsets.astype(np.int32)), pa.array(values.astype(self.dtype, copy=False))
        )


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """A column with one number for each row: `values` returns (n_rows,)."""

    name: str
    dtype: str
    values: Callable[[RowBatch], npt.NDArray[Any]]
    by_sample: bool = True

    @property
    def type(self) -> pa.DataType:
        """Return its type in Arrow."""
        import pyarrow as pa

        return pa.type_for_alias(self.dtype)

    def array(self, batch: RowBatch) -> pa.Array:
        """Return it for some rows."""
        import pyarrow as pa

        return pa.array(self.values(batch).astype(self.dtype, copy=False))


@dataclass(frozen=True, slots=True)
class StructColumn:
    """A column of structs of other columns."""

    name: str
    columns: Sequence[Column | NumberColumn]
    by_sample: bool = True

    @property
    def dtype(self) -> str:
        """Return its type as text."""
        return str(self.type)

    @property
    def type(self) -> pa.DataType:
        """Return its type in Arrow."""
        import pyarrow as pa

        return pa.struct([(one.name, one.type) for one in self.columns])

    def array(self, batch: RowBatch) -> pa.Array:
        """Return it for some rows."""
        import pyarrow as pa

        arrays = [one.array(batch) for one in self.columns]
        return pa.StructArray.from_arrays(arrays, [one.name for one in self.columns])


AnyColumn = Column | NumberColumn | StructColumn


def _labels(batch: RowBatch) -> Values:
    """Return the token ids, with -100 where the mask is 0; each at its own token's place."""
    found = batch.ids.astype(np.int64)
    if batch.mask is not None:
        found[batch.mask == 0] = IGNORE_INDEX
    return found, batch.row_offsets


def _weights(batch: RowBatch) -> Values:
    if batch.weights is None:
        raise TypeError("rows of a dataset without weights")
    return batch.weights, batch.row_offsets


INPUT_IDS = Column("input_ids", "int32", lambda batch: (batch.ids, batch.row_offsets))
LABELS = Column("labels", "int32", _labels)
WEIGHTS = Column("weights", "float32", _weights)
SEQ_LENGTHS = Column(
    "seq_lengths", "int32", lambda batch: (batch.sample_lengths, batch.row_samples), by_sample=True
)
AXOLOTL_COLUMNS: Sequence[AnyColumn] = [
    INPUT_IDS,
    Column(
        "attention_mask",
        "int8",
        lambda batch: (np.ones(len(batch.ids), np.int8), batch.row_offsets),
    ),
    Column("labels", "int64", _labels),
]


def loaded(output: Path, splits: Sequence[str], split: str) -> Any:
    """Return one of the splits of a directory, loaded with `datasets`."""
    import datasets

    found = datasets.load_from_disk(str(output))
    return found[split] if len(splits) > 1 else found


@dataclass(frozen=True, slots=True)
class ArrowTrainer:
    """A trainer that reads such a directory; attributes without a line are those of `Trainer`.

    `rows`: returns the rows of a split. `columns`, `usage`, `notes`: return these; `is_packed`, the
    last argument, says whether a split has packs. `comparing`: imports the trainer's own reader.
    `val`: what it calls the val split. `load`: returns the rows of one of several splits, as the
    trainer's own reader does.
    """

    title: str
    options: frozenset[str]
    reader: tuple[str, ...]
    rows: Callable[[ExportSource, str, ExportOptions], Rows]
    columns: Callable[[ExportSource, ExportOptions, bool], Sequence[AnyColumn]]
    usage: Callable[[ExportSource, ExportOptions, Path, bool], str]
    notes: Callable[[ExportSource, bool], list[str]]
    comparing: Callable[[Sequence[AnyColumn]], Comparing]
    kinds: frozenset[str] = frozenset({"pretrain", "sft"})
    val: str = "val"
    load: Callable[[Path, Sequence[str], str], Any] = loaded

    def layout(self, source: ExportSource, options: ExportOptions, output: Path) -> Layout:
        """Return the files of the directory; see `Trainer.layout`."""
        splits, columns, is_packed = self._plan(source, options)
        return Layout(
            _arrow_files(source, splits, columns, self.val),
            self.usage(source, options, output, is_packed),
            source.alignment,
            self.notes(source, is_packed),
            has_weights=any(one.name in _WEIGHTS for one in columns),
        )

    def check(self, source: ExportSource, options: ExportOptions, output: Path) -> Checked:
        """Compare every row as the trainer's own reader returns it; see `Trainer.check`."""
        splits, columns, _ = self._plan(source, options)
        reader, compare = self.comparing(columns)
        load = partial(self.load, output, source.splits)
        return check_rows(source, splits, output, load, compare, reader)

    def _plan(
        self, source: ExportSource, options: ExportOptions
    ) -> tuple[list[Rows], Sequence[AnyColumn], bool]:
        splits = [self.rows(source, split, options) for split in source.splits]
        is_packed = any(rows.packs is not None for rows in splits)
        return splits, self.columns(source, options, is_packed), is_packed


def _dataset_rows(source: ExportSource, split: str, options: ExportOptions) -> Rows:
    """Return packs of text if there are any; chats one by one.

    Documents have the kept fields whose names no column of tokens has.
    """
    names = [column.name for column in (INPUT_IDS, LABELS, SEQ_LENGTHS, WEIGHTS)]
    keep = [name for name in source.manifest.keep if name not in names]
    if source.kind == "sft":
        return DocumentRows(source, split, keep)
    return rows_of(source, split, options, keep)


def _dataset_columns(
    source: ExportSource, options: ExportOptions, is_packed: bool
) -> Sequence[AnyColumn]:
    if is_packed:
        return [INPUT_IDS, LABELS, SEQ_LENGTHS]
    columns = [INPUT_IDS, LABELS] if source.kind == "sft" else [INPUT_IDS]
    return [*columns, WEIGHTS] if source.has_weights and not options.drop_weights else columns


def _dataset_usage(
    source: ExportSource, options: ExportOptions, output: Path, is_packed: bool
) -> str:
    place = str(output.absolute())
    return f"from datasets import load_from_disk\n\ndataset = load_from_disk({place!r})"


def comparing_datasets(columns: Sequence[AnyColumn]) -> Comparing:
    """Return what compares rows as `datasets` returns them."""

    def compare(row: Any, samples: Sequence[Sample], where: str) -> None:
        check_columns({column.name: row[column.name] for column in columns}, samples, where)
        for name, value in samples[0].kept.items():
            if row[name] != value:
                raise VerifyError(f"{where}: {name}: expected {value!r}, found {row[name]!r}")

    return f"datasets {importlib.metadata.version('datasets')}", compare


def _trl_columns(
    source: ExportSource, options: ExportOptions, is_packed: bool
) -> Sequence[AnyColumn]:
    columns = [INPUT_IDS, LABELS] if source.kind == "sft" else [INPUT_IDS]
    return [*columns, SEQ_LENGTHS] if is_packed else columns


def _trl_usage(source: ExportSource, options: ExportOptions, output: Path, is_packed: bool) -> str:
    if source.kind != "sft" and not is_packed:
        settings = '    packing=True, packing_strategy="wrapped", max_length=4096,  # rows of 4,096'
    else:
        settings = (
            '    dataset_kwargs={"skip_prepare_dataset": True}, max_length=None,\n'
            f"    padding_free={is_packed}, per_device_train_batch_size={1 if is_packed else 8},"
        )
    several = len(source.splits) > 1
    train = 'dataset["train"], eval_dataset=dataset["val"]' if several else "dataset"
    return (
        "from datasets import load_from_disk\n"
        "from trl import SFTConfig, SFTTrainer\n\n"
        f"dataset = load_from_disk({str(output.absolute())!r})\n"
        f'arguments = SFTConfig(\n    output_dir="checkpoints",\n{settings}\n)\n'
        f"trainer = SFTTrainer(model, arguments, train_dataset={train})\n"
        "trainer.train()"
    )


def _trl_notes(source: ExportSource, is_packed: bool) -> list[str]:
    if is_packed:
        return [
            "the samples of a pack stay apart only with padding_free=True and a model loaded with "
            'attn_implementation="flash_attention_2" or another kernel that reads cu_seq_lens'
        ]
    if source.kind != "sft":
        return ["TRL makes rows of max_length tokens itself, and trains every token"]
    return []


def _comparing_trl(columns: Sequence[AnyColumn]) -> Comparing:
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    collate = DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)

    def compare(row: Any, samples: Sequence[Sample], where: str) -> None:
        batch = collate([row])
        lengths = [len(sample.ids) for sample in samples]
        labels = np.concatenate([sample.labels for sample in samples])
        starts = np.cumsum([0, *lengths])
        labels[starts[:-1]] = -100  # the collator's own rule; our masks have 0 there
        expected = {
            "input_ids": np.concatenate([sample.ids for sample in samples]),
            "labels": labels,
            "position_ids": np.concatenate([np.arange(length) for length in lengths]),
        }
        for name, values in expected.items():
            check_equal(batch[name][0].numpy(), values, where, name)
        check_equal(batch["cu_seq_lens_q"].numpy(), starts, where, "cu_seq_lens_q")

    return f"trl {importlib.metadata.version('trl')}", compare


def _axolotl_rows(source: ExportSource, split: str, options: ExportOptions) -> Rows:
    """Return a row for each piece of documents that are cut, in the order of their packs."""
    packs = source.packs.get(split)
    if packs is None or packs.pieces is None:
        return DocumentRows(source, split)
    rows = np.arange(len(packs.samples) + 1)
    return PackedRows(source, split, replace(packs, row_offsets=rows))


def _axolotl_usage(
    source: ExportSource, options: ExportOptions, output: Path, is_packed: bool
) -> str:
    """Return lines of axolotl's YAML; an empty `type:` says that the rows are tokenized."""
    path = yaml_text(str(output.absolute()))
    lines = ["datasets:", f"  - path: {path}", "    split: train", "    type:"]
    if "val" in source.splits:
        lines += ["test_datasets:", f"  - path: {path}", "    split: val", "    type:"]
    packs = source.manifest.packs.values()  # no document or piece is longer
    length = max((entry.capacity for entry in packs), default=4096)
    return "\n".join([*lines, f"sequence_len: {length}", "sample_packing: true"])


def _comparing_axolotl(columns: Sequence[AnyColumn]) -> Comparing:
    """Compare through the collator for packed rows, with a tokenizer that only pads."""
    from axolotl.utils.collators.batching import V2BatchSamplerDataCollatorForSeq2Seq

    collate = V2BatchSamplerDataCollatorForSeq2Seq(tokenizer=padding_tokenizer())

    def compare(row: Any, samples: Sequence[Sample], where: str) -> None:
        batch = collate([[row]])
        own = {column.name: batch[column.name][0].numpy() for column in columns}
        check_columns(own, samples, where)

    return f"axolotl {importlib.metadata.version('axolotl')}", compare


def padding_tokenizer() -> Any:
    """Return a tokenizer of transformers that only pads, for collators."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    pad = "<pad>"
    words = Tokenizer(WordLevel({pad: 0}, unk_token=pad))
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token=pad)


def _arrow_files(
    source: ExportSource, splits: Sequence[Rows], columns: Sequence[AnyColumn], val: str
) -> list[Written]:
    """Return the files of a directory with the rows of every split, and the given columns.

    Memory of writing: some batches of `rows.BATCH_TOKENS` tokens. The same dataset has the same
    bytes and fingerprints every time.

    Raises:
        UsageError: an id does not fit in int32.
    """
    if source.vocab_size - 1 > _MOST_ID:
        raise UsageError(f"{source.where}: Arrow rows have int32 ids, up to {_MOST_ID:,}")
    files, names = [], [val if rows.split == "val" else rows.split for rows in splits]
    for name, rows in zip(names, splits, strict=True):
        folder = "" if len(splits) == 1 else f"{name}/"
        files += _split_files(source, rows, columns, folder, name)
    if len(splits) > 1:
        files.append(_json("dataset_dict.json", {"splits": names}))
    return files


def _split_files(
    source: ExportSource, rows: Rows, columns: Sequence[AnyColumn], folder: str, split: str
) -> list[Written]:
    token_bytes = sum(np.dtype(one.dtype).itemsize for one in columns if not one.by_sample)
    n_parts = min(rows.n_rows, -(-rows.n_stored * token_bytes // FILE_BYTES))
    cuts = rows.cuts(max(1, n_parts)).tolist()
    names = [f"data-{i:05d}-of-{len(cuts) - 1:05d}.arrow" for i in range(len(cuts) - 1)]
    sizes = ((one.name, one.n_bytes) for one in source.manifest.files)
    n_kept = sum(n for name, n in sizes if rows.keep and name.endswith(f".{METADATA}"))
    files = []
    for name, start, stop in zip(names, cuts[:-1], cuts[1:], strict=True):
        write = partial(_write, rows, start, stop, columns)
        n_bytes = _most_bytes(rows, token_bytes, len(names)) + n_kept // len(names)
        files.append(Written(folder + name, n_bytes, write))
    return [
        *files,
        _json(f"{folder}state.json", _state(names, _fingerprint(source, rows, columns), split)),
        _json(f"{folder}dataset_info.json", {"citation": "", "description": "", "license": ""}),
    ]


def _most_bytes(rows: Rows, token_bytes: int, n_files: int) -> int:
    """Return about the bytes of a file, rounded up: values, offsets, and 4 KiB a batch."""
    n_batches = min(rows.n_rows, 2 * rows.n_stored // BATCH_TOKENS) + 2
    whole = rows.n_stored * token_bytes + rows.n_rows * 128 + rows.n_samples * 12 + n_batches * 4096
    return -(-whole // n_files) + 8192


def _state(names: Sequence[str], print_: str, split: str) -> dict[str, Any]:
    return {
        "_data_files": [{"filename": name} for name in names],
        "_fingerprint": print_,
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": split,
    }


def _fingerprint(source: ExportSource, rows: Rows, columns: Sequence[AnyColumn]) -> str:
    """Return 16 hex digits of what decides the rows: the files of the split, columns and packs.

    `datasets` names its caches after it; another content has another one.
    """
    stems = {entry.name for entry in source.entries(rows.split)}
    files = [one for one in source.manifest.files if one.name.partition(".")[0] in stems]
    known = [{"name": one.name, one.algorithm: one.checksum} for one in files]
    shape = [*([one.name, one.dtype] for one in columns), *rows.keep]
    digest = hashlib.sha256(json.dumps([known, shape], sort_keys=True).encode())
    if rows.packs is not None:
        for array in rows.packs.columns():
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()[:16]


def _json(name: str, value: dict[str, Any]) -> Written:
    data = json.dumps(value, indent=2, sort_keys=True).encode()
    return Written.of(name, data)


def _write(rows: Rows, start: int, stop: int, columns: Sequence[AnyColumn], file: BinaryIO) -> None:
    import pyarrow as pa

    fields = [(one.name, one.type) for one in columns]
    schema = pa.schema([*fields, *((name, pa.string()) for name in rows.keep)])
    with pa.ipc.new_stream(file, schema) as stream:
        for batch in rows.batches(start, stop):
            arrays = [one.array(batch) for one in columns]
            if batch.metadata is not None:
                kept = batch.metadata.columns
                arrays += [column.combine_chunks().cast(pa.string()) for column in kept]
            stream.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))


DATASETS = ArrowTrainer(
    "Hugging Face datasets",
    options=frozenset({"unpacked"}),
    reader=("datasets",),
    rows=_dataset_rows,
    columns=_dataset_columns,
    usage=_dataset_usage,
    notes=lambda source, is_packed: [],
    comparing=comparing_datasets,
)

TRL = ArrowTrainer(
    "TRL",
    options=frozenset({"packing", "unpacked"}),
    reader=("trl", "datasets"),
    rows=rows_of,
    columns=_trl_columns,
    usage=_trl_usage,
    notes=_trl_notes,
    comparing=_comparing_trl,
)

UNSLOTH = replace(
    TRL,
    title="Unsloth",
    usage=lambda *given: f"import unsloth  # before trl, which it changes\n{_trl_usage(*given)}",
)

AXOLOTL = ArrowTrainer(
    "axolotl",
    options=frozenset(),
    reader=("axolotl", "datasets", "transformers"),
    rows=_axolotl_rows,
    columns=lambda source, options, is_packed: AXOLOTL_COLUMNS,
    usage=_axolotl_usage,
    notes=lambda source, is_packed: [
        "axolotl drops rows longer than its sequence_len, unless excess_length_strategy is set"
    ],
    comparing=_comparing_axolotl,
)
