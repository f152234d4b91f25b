from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokmill.errors import StorageError
from tokmill.sources.parquet import ColumnSize, ParquetColumns

TITLES = pa.schema([("title", pa.string())])


@pytest.fixture
def table():
    sections = [[{"title": f"s{i}", "content": "猫" * i}] for i in range(5)]
    return pa.table({"title": [f"t{i}" for i in range(5)], "sections": sections})


def sizes(path):
    with pq.ParquetFile(path) as file:
        columns = ParquetColumns(file)
        return [columns.sizes(i) for i in range(file.metadata.num_row_groups)]


def footers(data):
    """Yield the file once for each byte of its footer, with that byte changed."""
    length = int.from_bytes(data[-8:-4], "little")
    for i in range(len(data) - 8 - length, len(data) - 8):
        yield data[:i] + bytes([data[i] ^ 0x0F]) + data[i + 1 :]


def test_the_sizes_are_those_of_the_footer(tmp_path, table):
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    groups = sizes(tmp_path / "a.parquet")
    metadata = pq.ParquetFile(tmp_path / "a.parquet").metadata
    assert len(groups) == 3
    for i, columns in enumerate(groups):
        found = map(metadata.row_group(i).column, range(3))
        assert columns == [
            ColumnSize(x.path_in_schema, x.total_compressed_size, x.total_uncompressed_size)
            for x in found
        ]


def test_no_page_is_read(tmp_path, table):
    path = tmp_path / "a.parquet"
    pq.write_table(table, path)
    whole, data = sizes(path), path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little") + 8
    path.write_bytes(b"PAR1".ljust(len(data) - length, b"\xff") + data[-length:])
    assert sizes(path) == whole


def test_a_damaged_footer_is_read_or_refused(tmp_path, table, read):
    path = tmp_path / "a.parquet"
    pq.write_table(table, path)
    refused = 0
    for data in footers(path.read_bytes()):
        path.unlink()  # pyarrow may still read the last one
        path.write_bytes(data)
        try:
            read(path, schema=TITLES)
        except StorageError:
            refused += 1
    assert refused > 100


def test_a_column_that_cannot_be_opened_has_no_size_and_the_others_are_read(tmp_path, table, read):
    path = tmp_path / "a.parquet"
    pq.write_table(table, path)
    whole, found = sizes(path), []
    rows = read(path, schema=TITLES).rows
    for data in footers(path.read_bytes()):
        path.unlink()
        path.write_bytes(data)
        try:
            found = sizes(path)
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            continue
        if found == [whole[0][:-1]]:
            break
    assert found == [whole[0][:-1]]
    assert read(path, schema=TITLES).rows == rows
