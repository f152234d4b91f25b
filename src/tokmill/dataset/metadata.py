"""The metadata columns of a shard, `.meta`: an Arrow IPC file with a row for each document.

Every record batch but the last has `GROUP` documents, so that neither blocks nor workers change a
byte. `pyarrow.ipc.open_file(pyarrow.memory_map(...))` reads it, too.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from tokmill.storage import read_errors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

METADATA = "meta"
"""The ending of the file."""

GROUP = 256
"""Documents of a record batch. A writer holds their values, and its head takes 2 to 4 bytes a
document."""


class MetadataEncoder:
    """Encodes the rows of a shard's documents, in order; how they are divided changes no byte."""

    def __init__(self) -> None:
        self._sink = io.BytesIO()
        self._file: Any = None
        self._waiting: Any = None

    def encode(self, parts: Sequence[pa.RecordBatch | pa.Table]) -> bytes:
        """Return the bytes of the next complete groups; `parts`: at least one."""
        import pyarrow as pa

        schema = parts[0].schema
        if self._file is None:  # Arrow counts the bytes itself, so that the sink may be emptied
            options = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V5)
            self._file = pa.ipc.new_file(pa.PythonFile(self._sink, "w"), schema, options=options)
            self._waiting = schema.empty_table()
        tables = (
            part if isinstance(part, pa.Table) else pa.Table.from_batches([part]) for part in parts
        )
        self._waiting = pa.concat_tables([self._waiting, *tables])
        return self._groups(GROUP)

    def finish(self) -> bytes:
        """Return the rest of the file; something was encoded before."""
        rest = self._groups(1)
        self._file.close()
        return rest + self._groups(1)

    def _groups(self, least: int) -> bytes:
        """Return the bytes of groups, and what else was written, until less than `least` wait."""
        import pyarrow as pa

        while self._waiting.num_rows >= least:
            # Made anew from Python strings: buffers of slices hold bits of other rows.
            columns = [column.to_pylist() for column in self._waiting[:GROUP].columns]
            arrays = [pa.array(column, pa.large_string()) for column in columns]
            self._file.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._waiting.schema))
            self._waiting = self._waiting[GROUP:]
        data = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return data


def read_metadata(path: Path, start: int = 0, stop: int | None = None) -> pa.Table:
    """Return the rows of documents `start` to `stop - 1` of a shard; they stay in the mapped file.

    Raises:
        VerifyError: the file is missing, damaged, or does not hold them.
        StorageError: the user may not read it.
    """
    import pyarrow as pa

    with read_errors(path):
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        n_groups = reader.num_record_batches
        last = n_groups if stop is None else min(-(-stop // GROUP), n_groups)
        batches = [reader.get_batch(group) for group in range(start // GROUP, last)]
        for batch in batches:
            batch.validate(full=True)  # damaged offsets would be followed
        rows = pa.Table.from_batches(batches, reader.schema)[start % GROUP :]
        is_uneven = any(batch.num_rows != GROUP for batch in batches[:-1])
        if is_uneven or (stop is not None and rows.num_rows < stop - start):
            raise ValueError("not the metadata of these documents")
        return rows if stop is None else rows[: stop - start]
