"""The documents of a dataset as a table: a row for each, without its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from tokmill.dataset.documents import Documents
    from tokmill.dataset.origins import OriginFinder


def documents_table(documents: Documents, origins: OriginFinder) -> pa.Table:
    """Return split, shard, tokens, path and record of each document, and the fields that were kept.

    Without origins, as of imported tokens, path and record are null.

    Raises:
        TokmillError: an index, the origins or the kept fields are missing or damaged.
    """
    kept = documents.manifest.keep
    tables = [_of_shard(documents, origins, index) for index in range(len(documents.entries))]
    if tables:
        return pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    names = ("split", "shard", "tokens", "path", "record", *kept)
    return pa.table({name: pa.nulls(0) for name in names})


def _of_shard(documents: Documents, origins: OriginFinder, index: int) -> pa.Table:
    """Return the rows of a shard."""
    entry, shard = documents.entries[index], documents.shard(index)
    n_documents = len(shard.lengths)
    columns = {
        "split": _repeated(entry.split, n_documents),
        "shard": _repeated(entry.name, n_documents),
        "tokens": pa.array(shard.lengths[:], pa.int32()),
        "path": pa.nulls(n_documents, pa.dictionary(pa.int32(), pa.string())),
        "record": pa.nulls(n_documents, pa.int64()),
    }
    if entry.first_slice is not None:
        paths = pa.array([file.path for file in documents.manifest.input_files], pa.string())
        sources = pa.array(origins.sources(entry), pa.int32())
        columns["path"] = pa.DictionaryArray.from_arrays(sources, paths)
        columns["record"] = pa.array(origins.records(entry), pa.int64())
    if documents.manifest.keep:
        first = int(documents.firsts[index])
        kept = documents.metadata(first, n_documents)
        columns |= {name: kept.column(name) for name in kept.column_names}
    return pa.table(columns)


def _repeated(text: str, n: int) -> pa.DictionaryArray:
    """Return a column with one text in every row."""
    return pa.DictionaryArray.from_arrays(np.zeros(n, np.int32), pa.array([text], pa.string()))
