"""Documents in memory: a record batch of Arrow, with a row for each.

| column              | holds                                                              |
|---------------------|--------------------------------------------------------------------|
| `bin`, the sidecars | large binary: the document's bytes in each file beside the tokens  |
| `record`, `byte`    | int64: its origin, with slices numbered over all inputs            |
| `meta NAME`         | large string: a field of its record that was kept, or null         |

Arrow takes rows in any order by copying one document at a time, and maps what it has written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tokmill.dataset.layout import ORIGIN, SIDECARS
from tokmill.dataset.manifest import slice_of_part
from tokmill.dataset.origins import origin_numbers, read_numbers, slices_of
from tokmill.dataset.part_writer import EncodedDocuments
from tokmill.dataset.reader import open_shard
from tokmill.dataset.sidecars import METADATA, read_metadata
from tokmill.errors import VerifyError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokmill.dataset.checked import CheckedFiles
    from tokmill.mixing.inputs import Chunk, Inputs
    from tokmill.mixing.temporary import Temporary


def read_chunk(inputs: Inputs, chunk: Chunk, checked: CheckedFiles | None = None) -> pa.RecordBatch:
    """Return the documents of a chunk, with ids of the mix's dtype.

    `checked`: the files of its dataset, which sum what is read of the bodies.

    Raises:
        VerifyError: the shard is missing or damaged.
        StorageError: it cannot be read.
    """
    dataset, entry, here = inputs.datasets[chunk.input], chunk.entry, slice(chunk.start, chunk.stop)
    shard = open_shard(dataset.directory, dataset.manifest, entry)
    ends = np.cumsum(np.append(0, shard.lengths[here]), dtype=np.int64)
    start = int(shard.lengths[: chunk.start].sum(dtype=np.int64))
    tokens = slice(start, start + int(ends[-1]))
    bodies = {"bin": shard.tokens[tokens]}
    bodies |= {ending: body[tokens] for ending, body in shard.sidecars.items()}
    if checked is not None:
        for ending, body in bodies.items():
            path = dataset.directory / f"{entry.name}.{ending}"
            checked.add(path, start * body.itemsize, body.view(np.uint8).data)
    bodies["bin"] = bodies["bin"].astype(inputs.dtype, copy=False)
    numbers = origins_of(inputs, chunk)
    return pa.RecordBatch.from_pydict(
        {
            **{ending: _rows(body, ends) for ending, body in bodies.items()},
            "record": np.ascontiguousarray(numbers[:, 0]),
            "byte": np.ascontiguousarray(numbers[:, 1]),
            **_metadata(inputs, chunk),
        }
    )


def _metadata(inputs: Inputs, chunk: Chunk) -> dict[str, pa.Array]:
    """Return the kept fields of a chunk; those that its dataset does not have are null."""
    if not inputs.keep:
        return {}
    dataset = inputs.datasets[chunk.input]
    fields = dict.fromkeys(inputs.keep, pa.nulls(len(chunk), pa.large_string()))
    if dataset.keep:
        path = dataset.directory / f"{chunk.entry.name}.{METADATA}"
        table = read_metadata(path, dataset.keep, chunk.start, chunk.stop).combine_chunks()
        fields |= {name: table.column(name).combine_chunks() for name in dataset.keep}
    return {f"{METADATA} {name}": field for name, field in fields.items()}


def documents_of(batch: pa.RecordBatch, inputs: Inputs) -> EncodedDocuments:
    """Return the documents of a batch, with their sidecars; only origins are copied."""
    of_tokens = {ending: values(batch, SIDECARS[ending], ending) for ending in inputs.sidecars}
    origins = np.stack([column(batch, "record"), column(batch, "byte")], axis=1)
    of_documents: dict[str, Any] = {ORIGIN: origins}
    if inputs.keep:
        of_documents[METADATA] = _kept_fields(batch, inputs.keep)
    tokens, offsets = values(batch, inputs.dtype), bounds(batch, inputs.dtype)
    return EncodedDocuments(tokens, offsets, of_tokens, of_documents)


def _kept_fields(batch: pa.RecordBatch, keep: Sequence[str]) -> pa.RecordBatch:
    """Return the kept fields of documents, with their own names."""
    columns = [batch.column(f"{METADATA} {name}") for name in keep]
    return pa.RecordBatch.from_arrays(columns, names=list(keep))


def origins_of(inputs: Inputs, chunk: Chunk) -> npt.NDArray[np.int64]:
    """Return the origins of the documents of a chunk: (n, 2); raises as `read_chunk`.

    Imported tokens have a part for each file: the number of a document in it is its record.
    """
    dataset, entry = inputs.datasets[chunk.input], chunk.entry
    if entry.first_slice is not None:
        path = dataset.directory / f"{entry.name}.{ORIGIN}"
        numbers = read_numbers(path, chunk.start, chunk.stop)
        return _known(
            origin_numbers(dataset.first_slice + entry.first_slice, numbers), inputs, path
        )
    records = np.arange(chunk.start, chunk.stop) + chunk.before + 1
    numbers = np.stack([records, np.full(len(records), -1)], axis=1)
    part = slice_of_part(dataset.manifest.mix, int(entry.name.split("-")[1]))
    path = dataset.directory / f"{entry.name}.bin"
    return _known(origin_numbers(dataset.first_slice + part, numbers), inputs, path)


def _known(numbers: npt.NDArray[np.int64], inputs: Inputs, path: Path) -> npt.NDArray[np.int64]:
    """Return origins whose slices there are; raises `VerifyError`, which names `path`."""
    slices, _ = slices_of(numbers[:, 0])
    if len(slices) and not 0 <= slices.min() <= slices.max() < len(inputs.slice_rows):
        raise VerifyError(f"{path}: a document has no record of the sources; see tokmill verify")
    return numbers


def rows_of(inputs: Inputs, chunk: Chunk) -> npt.NDArray[np.int64]:
    """Return the source of each document of a chunk among those of all inputs: (n,) int64."""
    dataset = inputs.datasets[chunk.input]
    if len(dataset.manifest.input_files) == 1:
        return np.full(len(chunk), dataset.first_row)
    slices, _ = slices_of(origins_of(inputs, chunk)[:, 0])
    return np.asarray(inputs.slice_rows[slices])


def records_of(
    batch: pa.RecordBatch, inputs: Inputs
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the source of each document, and the number of its record in the file: (n,) int64."""
    slices, records = slices_of(column(batch, "record"))
    return inputs.slice_rows[slices], records + inputs.records_before[slices]


def _rows(values: npt.NDArray[Any], ends: npt.NDArray[np.int64]) -> pa.LargeBinaryArray:
    """Return values cut at `ends`, of which the first is 0; nothing is copied."""
    data = pa.py_buffer(np.ascontiguousarray(values))
    buffers = [None, pa.py_buffer(ends * values.itemsize), data]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ends) - 1, buffers)


def bounds(batch: pa.RecordBatch, dtype: np.dtype[Any], ending: str = "bin") -> npt.NDArray[Any]:
    """Return where documents begin in the buffer of a column, and the end of the last: (n + 1,)."""
    column = batch.column(ending)
    offsets = np.frombuffer(column.buffers()[1], np.int64)
    return offsets[column.offset : column.offset + len(column) + 1] // dtype.itemsize


def values(batch: pa.RecordBatch, dtype: np.dtype[Any], ending: str = "bin") -> npt.NDArray[Any]:
    """Return the values of all documents, end to end: (n_tokens,)."""
    ends = bounds(batch, dtype, ending)
    data = np.frombuffer(batch.column(ending).buffers()[2] or b"", np.uint8)
    return data[int(ends[0]) * dtype.itemsize : int(ends[-1]) * dtype.itemsize].view(dtype)


def trained(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the tokens of each document that its mask trains: (n,) int64; 0 without masks."""
    if "mask" not in batch.schema.names or not len(batch):
        return np.zeros(len(batch), np.int64)
    starts = bounds(batch, np.dtype(np.uint8), "mask")[:-1]
    mask = values(batch, np.dtype(np.uint8), "mask")
    sums: npt.NDArray[np.int64] = np.add.reduceat(mask, starts - starts[0], dtype=np.int64)
    return sums


def column(batch: pa.RecordBatch, name: str) -> npt.NDArray[Any]:
    """Return a column of numbers."""
    array: npt.NDArray[Any] = batch.column(name).to_numpy()
    return array


def write_run(
    temporary: Temporary, name: str, batches: list[pa.RecordBatch], places: npt.NDArray[np.int64]
) -> None:
    """Write documents sorted by their places."""
    order, batch = np.argsort(places), _joined(batches)
    run = batch.take(pa.array(order)).append_column("place", pa.array(places[order]))
    with temporary.new(name) as file, pa.ipc.new_file(file, run.schema) as writer:
        writer.write_batch(run)


def read_run(temporary: Temporary, name: str, start: int, stop: int) -> pa.RecordBatch:
    """Return the documents of a run at places `start` to `stop - 1`, mapped."""
    # Arrow's own memory map asks the system to read the whole run: six times as long.
    run = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(temporary.map(name)))).get_batch(0)
    low, high = np.searchsorted(column(run, "place"), (start, stop)).tolist()
    return run.slice(low, high - low)


def sorted_by_place(runs: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the documents of several runs in the order of their places."""
    joined = _joined(runs)
    return joined.take(pa.array(np.argsort(column(joined, "place"))))


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the documents of several batches in one."""
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches).combine_chunks()
    return table.to_batches()[0] if table.num_rows else batches[0]
