"""Streams a dataset of the Hugging Face Hub, as Arrow batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tokmill.sources.hub_commit import HUB_PREFIX, missing, unreachable
from tokmill.sources.rows import RowReader, RowSource
from tokmill.sources.samples import HEAD_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokmill.settings.schema import InputSettings
    from tokmill.sources.slices import Slice, SourceFile
    from tokmill.values import Place

_ROWS = 256  # rows asked for at once; blocks are cut from them by their bytes


def open_hub(
    piece: Slice,
    settings: InputSettings,
    schema: pa.Schema,
    batch_bytes: int,
    start: Place | None,
    *,
    samples_head: bool = False,
) -> RowReader:
    """Open a split of a Hub dataset, streaming. A resume asks the Hub to skip the rows before.

    Raises:
        UsageError: the `datasets` package is missing.
        StorageError: the dataset cannot be reached or read.
    """
    where = piece.file.path
    dataset = _load(piece.file, settings)
    heads: list[pa.RecordBatch] = []

    def batches(first: int) -> Iterator[pa.RecordBatch]:
        wanted = dataset.skip(first) if first else dataset
        try:
            for table in wanted.with_format("arrow").iter(batch_size=_ROWS):
                for batch in pa.table(table).combine_chunks().to_batches():
                    if not heads:
                        heads.append(batch.slice(0, HEAD_ROWS))
                    yield batch
        except Exception as error:  # whatever the network and the dataset's readers raise
            raise unreachable(where, error) from error

    source = RowSource(
        batches=batches,
        names=list(dataset.column_names or schema.names),
        n_rows=0,
        n_bytes=0,
        rows_before=lambda: 0,
        close=lambda: None,
        where=where,
        head=lambda: next(iter(heads), None),
    )
    limits = (batch_bytes, settings.max_record_bytes, start)
    return RowReader(source, schema, *limits, samples_head=samples_head)


def _load(file: SourceFile, settings: InputSettings) -> Any:
    """Open the commit that the plan names."""
    try:
        import datasets
    except ImportError:
        raise missing(file.path, "datasets") from None
    try:
        return datasets.load_dataset(
            file.path.removeprefix(HUB_PREFIX),
            settings.hub_config or None,
            split=settings.hub_split,
            revision=file.stamp or None,
            streaming=True,
        )
    except Exception as error:
        raise unreachable(file.path, error) from error
