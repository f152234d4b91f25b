"""What the tests of this room share: reading a file or a slice to plain rows and rejects."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest

from tokmill.settings.schema import InputSettings
from tokmill.sources.files import Slice, discover
from tokmill.sources.formats import open_slice
from tokmill.values import RecordPlace

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = pa.schema(
    [
        ("title", pa.string()),
        ("sections", pa.list_(pa.struct([("title", pa.string()), ("content", pa.string())]))),
    ]
)


class Read(NamedTuple):
    """Rows, the place of each in the file, and rejects as (line, byte offset, reason, raw).

    `unread` is (line, byte offset, reason, bytes of text, stored byte, stored bytes). `replaced` is
    by row, `metadata` what is kept of each row.
    """

    rows: list[dict[str, Any]]
    places: list[RecordPlace]
    rejects: list[tuple[int, int, str, bytes]]
    raw: list[bytes]
    input_bytes: int
    messages: list[str]
    unread: list[tuple[int, int, str, int, int, int]]
    replaced: dict[int, int]
    metadata: list[dict[str, Any]]


def read_slice(
    piece: Slice,
    settings: InputSettings | None = None,
    *,
    schema: pa.Schema = SCHEMA,
    batch_bytes: int = 1 << 20,
) -> Read:
    found = Read([], [], [], [], 0, [], [], {}, [])
    n_bytes = 0
    with open_slice(piece, settings or InputSettings(), schema, batch_bytes) as reader:
        for block in reader.blocks():
            n_bytes += block.input_bytes
            records = block.parse()
            assert records.batch.schema.names == schema.names
            records.batch.validate(full=True)
            n_before = len(found.rows)
            found.replaced.update({n_before + row: n for row, n in records.replaced.items()})
            if records.metadata is not None:
                found.metadata.extend(records.metadata.to_pylist())
            found.rows.extend(records.batch.to_pylist())
            for row in range(records.batch.num_rows):
                found.places.append(
                    RecordPlace(*records.places[row].tolist()).shifted(reader.origin())
                )
                found.raw.append(records.raw(row))
            for reject in records.rejects:
                place = reject.place.shifted(reader.origin())
                found.rejects.append((place.line, place.byte_offset, reject.reason, reject.raw))
                found.messages.append(reject.message)
            if records.unread is not None:
                broken = records.unread
                place = broken.place.shifted(reader.origin())
                numbers = (broken.text_bytes, broken.stored_byte, broken.stored_bytes)
                found.unread.append((place.line, place.byte_offset, broken.reason, *numbers))
                found.messages.append(broken.message)
    return found._replace(input_bytes=n_bytes)


def read_path(path: Any, **options: Any) -> Read:
    names = {field.name for field in dataclasses.fields(InputSettings)}
    given = {name: options.pop(name) for name in list(options) if name in names}
    settings = InputSettings(paths=(str(path),), **given)
    (file,) = discover(settings).files
    return read_slice(Slice(file, 0, -1, file.n_bytes), settings, **options)


@pytest.fixture
def read() -> Callable[..., Read]:
    """Give a function that reads a file whole; options are settings, schema, batch_bytes."""
    return read_path


@pytest.fixture
def read_piece() -> Callable[..., Read]:
    """Give a function that reads a slice."""
    return read_slice


@pytest.fixture
def schema() -> pa.Schema:
    return SCHEMA


_POOLS: list[pa.MemoryPool] = []
"""Kept to the end: what was allocated from a pool may outlive the test."""


class Allocated:
    """Arrow's memory while a context is open: `peak_bytes` at most at once."""

    def __enter__(self) -> Allocated:
        self._before = pa.default_memory_pool()
        self._pool = pa.proxy_memory_pool(self._before)
        _POOLS.append(self._pool)
        pa.set_memory_pool(self._pool)
        return self

    def __exit__(self, *exc_info: object) -> None:
        pa.set_memory_pool(self._before)

    @property
    def peak_bytes(self) -> int:
        return self._pool.max_memory()


@pytest.fixture
def allocated() -> type[Allocated]:
    """Return a context that says how much memory Arrow took inside it."""
    return Allocated
