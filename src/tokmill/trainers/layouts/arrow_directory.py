"""Directories of Hugging Face `datasets`, written with Arrow alone: what `load_from_disk` reads.

One split: `data-00000-of-0000N.arrow`, `dataset_info.json`, `state.json`. Several: such a folder
for each split, and `dataset_dict.json`. An `.arrow` file is an Arrow IPC stream.

Source of the layout: datasets, arrow_dataset.py (`save_to_disk`, `load_from_disk`) and
dataset_dict.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from tokmill.dataset.metadata import METADATA
from tokmill.errors import UsageError
from tokmill.trainers.layouts.rows import BATCH_TOKENS, RowBatch, Rows
from tokmill.trainers.trainer import Written

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.trainers.source import ExportSource

FILE_BYTES = 500_000_000
"""About the bytes of a file: the size at which `datasets` begins the next one."""

IGNORE_INDEX = -100
"""The label of a token that is no target, in PyTorch's losses."""

_MOST_ID = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Column:
    """A column of lists of numbers.

    `values`: returns the values of some rows, and the offsets of the rows in them.
    `by_sample`: it has a value for each sample, not for each token.
    """

    name: str
    dtype: str
    values: Callable[[RowBatch], tuple[npt.NDArray[Any], npt.NDArray[np.int64]]]
    by_sample: bool = False


def ids(batch: RowBatch) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return the token ids."""
    return batch.ids, batch.row_offsets


def labels(batch: RowBatch) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return the token ids, with -100 where the mask is 0; each at its own token's place."""
    found = batch.ids.astype(np.int64)
    if batch.mask is not None:
        found[batch.mask == 0] = IGNORE_INDEX
    return found, batch.row_offsets


def ones(batch: RowBatch) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return a 1 for each token."""
    return np.ones(len(batch.ids), np.int8), batch.row_offsets


def seq_lengths(batch: RowBatch) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return the tokens of each sample, or piece, of a row."""
    return batch.sample_lengths, batch.row_samples


def weights(batch: RowBatch) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return the weight of each token in the loss."""
    if batch.weights is None:
        raise TypeError("rows of a dataset without weights")
    return batch.weights, batch.row_offsets


INPUT_IDS = Column("input_ids", "int32", ids)
LABELS = Column("labels", "int32", labels)
WEIGHTS = Column("weights", "float32", weights)
SEQ_LENGTHS = Column("seq_lengths", "int32", seq_lengths, by_sample=True)


def arrow_files(
    source: ExportSource, splits: Sequence[Rows], columns: Sequence[Column]
) -> list[Written]:
    """Return the files of a directory with the rows of every split, and the given columns.

    Memory of writing: some batches of `rows.BATCH_TOKENS` tokens. The same dataset has the same
    bytes and fingerprints every time.

    Raises:
        UsageError: an id does not fit in int32.
    """
    if source.vocab_size - 1 > _MOST_ID:
        raise UsageError(f"{source.directory}: Arrow rows have int32 ids, up to {_MOST_ID:,}")
    files = []
    for rows in splits:
        folder = "" if len(splits) == 1 else f"{rows.split}/"
        files += _split_files(source, rows, columns, folder)
    if len(splits) > 1:
        files.append(_json("dataset_dict.json", {"splits": [rows.split for rows in splits]}))
    return files


def _split_files(
    source: ExportSource, rows: Rows, columns: Sequence[Column], folder: str
) -> list[Written]:
    token_bytes = sum(np.dtype(one.dtype).itemsize for one in columns if not one.by_sample)
    n_parts = min(rows.n_rows, -(-rows.n_tokens * token_bytes // FILE_BYTES))
    cuts = rows.cuts(max(1, n_parts)).tolist()
    names = [f"data-{i:05d}-of-{len(cuts) - 1:05d}.arrow" for i in range(len(cuts) - 1)]
    sizes = ((one["name"], one["bytes"]) for one in source.manifest["files"])
    n_kept = sum(n for name, n in sizes if rows.keep and name.endswith(f".{METADATA}"))
    files = []
    for name, start, stop in zip(names, cuts[:-1], cuts[1:], strict=True):
        write = partial(_write, rows, start, stop, columns)
        n_bytes = _most_bytes(rows, token_bytes, len(names)) + n_kept // len(names)
        files.append(Written(folder + name, n_bytes, write))
    return [
        *files,
        _json(f"{folder}state.json", _state(names, fingerprint(source, rows, columns), rows.split)),
        _json(f"{folder}dataset_info.json", {"citation": "", "description": "", "license": ""}),
    ]


def _most_bytes(rows: Rows, token_bytes: int, n_files: int) -> int:
    """Return about the bytes of a file, rounded up: values, offsets, and 4 KiB a batch."""
    n_batches = min(rows.n_rows, 2 * rows.n_tokens // BATCH_TOKENS) + 2
    whole = rows.n_tokens * token_bytes + rows.n_rows * 16 + rows.n_samples * 4 + n_batches * 4096
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


def fingerprint(source: ExportSource, rows: Rows, columns: Sequence[Column]) -> str:
    """Return 16 hex digits of what decides the rows: the files of the split, columns and packs.

    `datasets` names its caches after it; another content has another one.
    """
    stems = {entry["name"] for entry in source.entries(rows.split)}
    files = [one for one in source.manifest["files"] if one["name"].partition(".")[0] in stems]
    known = [{key: value for key, value in one.items() if key != "bytes"} for one in files]
    shape = [*([one.name, one.dtype] for one in columns), *rows.keep]
    digest = hashlib.sha256(json.dumps([known, shape], sort_keys=True).encode())
    if rows.packs is not None:
        for array in rows.packs.columns():
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()[:16]


def _json(name: str, value: dict[str, Any]) -> Written:
    data = json.dumps(value, indent=2, sort_keys=True).encode()
    return Written.of(name, data)


def _write(rows: Rows, start: int, stop: int, columns: Sequence[Column], file: BinaryIO) -> None:
    import pyarrow as pa

    fields = [(one.name, pa.list_(pa.type_for_alias(one.dtype))) for one in columns]
    schema = pa.schema([*fields, *((name, pa.string()) for name in rows.keep)])
    with pa.ipc.new_stream(file, schema) as stream:
        for batch in rows.batches(start, stop):
            arrays = [_lists(one, batch) for one in columns]
            if batch.metadata is not None:
                kept = batch.metadata.columns
                arrays += [column.combine_chunks().cast(pa.string()) for column in kept]
            stream.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))


def _lists(column: Column, batch: RowBatch) -> pa.Array:
    """Return one column of some rows. Its offsets count within the batch, so int32 is enough."""
    import pyarrow as pa

    values, offsets = column.values(batch)
    return pa.ListArray.from_arrays(
        pa.array(offsets.astype(np.int32)), pa.array(values.astype(column.dtype, copy=False))
    )
