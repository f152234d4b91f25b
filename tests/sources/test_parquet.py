from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tokmill.errors import StorageError, UsageError
from tokmill.settings.schema import InputSettings
from tokmill.sources.files import Slice, SourceFile
from tokmill.sources.formats import cut, open_slice
from tokmill.values import RecordPlace

TITLES = pa.schema([("title", pa.string())])


def parquet(path, n_rows=10, group=3):
    table = pa.table({"id": list(range(n_rows)), "title": [f"t{i}" for i in range(n_rows)]})
    pq.write_table(table, path, row_group_size=group)
    return SourceFile(path.as_posix(), "parquet", "", path.stat().st_size, 0, "")


def test_slices_of_row_groups_give_each_row_once(tmp_path, read_piece):
    file = parquet(tmp_path / "a.parquet")
    for part_bytes in (1, 200, 400, file.n_bytes):
        pieces = cut(file, part_bytes)
        parts = [read_piece(piece, schema=TITLES, batch_bytes=8) for piece in pieces]
        assert [row["title"] for part in parts for row in part.rows] == [f"t{i}" for i in range(10)]
        places = [place for part in parts for place in part.places]
        assert places == [RecordPlace(i + 1, -1) for i in range(10)]
        assert sum(piece.n_bytes for piece in pieces) == file.n_bytes
        assert sum(part.input_bytes for part in parts) == file.n_bytes
    assert len(cut(file, 1)) == 4


def test_missing_columns_are_null_and_no_columns_count_rows(tmp_path, read):
    parquet(tmp_path / "a.parquet", 2)
    schema = pa.schema([("none", pa.string())])
    assert read(tmp_path / "a.parquet", schema=schema).rows == [{"none": None}] * 2
    assert read(tmp_path / "a.parquet", schema=pa.schema([])).rows == [{}] * 2


def test_a_column_of_another_type_is_a_usage_error(tmp_path, read):
    parquet(tmp_path / "a.parquet", 2)
    with pytest.raises(UsageError, match="column 'id': expected string, found int64"):
        read(tmp_path / "a.parquet", schema=pa.schema([("id", pa.string())]))


def test_what_is_no_whole_parquet_file_is_a_storage_error(tmp_path, read):
    path = tmp_path / "a.parquet"
    parquet(path)
    data = path.read_bytes()
    for broken in (data[:-20], b"not parquet at all", data[:50] + bytes(80) + data[130:]):
        path.write_bytes(broken)
        with pytest.raises(StorageError, match=r"a\.parquet: expected a complete Parquet file"):
            read(path, schema=TITLES)


TEXT = pa.schema([("text", pa.string())])
LONG = "x" * 10_000
BATCH_BYTES = 1 << 20


def blocks_of(path, schema=TEXT, batch_bytes=BATCH_BYTES):
    """Yield the blocks of a file, parsed and dropped one after the other."""
    file = SourceFile(path.as_posix(), "parquet", "", path.stat().st_size, 0, "")
    piece = Slice(file, 0, -1, file.n_bytes)
    with open_slice(piece, InputSettings(), schema, batch_bytes) as reader:
        for block in reader.blocks():
            yield block, block.parse()


def test_a_dictionary_of_one_text_is_decoded_a_block_at_a_time(tmp_path, allocated):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [LONG] * 6_000}), path)
    assert path.stat().st_size < 10_000
    with allocated() as memory:
        n_rows = 0
        for block, records in blocks_of(path):
            assert block.n_bytes <= BATCH_BYTES
            n_rows += records.batch.num_rows
    assert n_rows == 6_000
    assert memory.peak_bytes < 12 * BATCH_BYTES  # of 60 MB


@pytest.mark.parametrize("use_dictionary", [True, False])
def test_long_rows_behind_short_ones_are_read_few_at_a_time(tmp_path, allocated, use_dictionary):
    path = tmp_path / "a.parquet"
    texts = ["short"] * 20_000 + [f"{i}" * 100_000 for i in range(200)]
    table = pa.table({"text": texts})
    # A page is decoded whole: small ones, so that the size of batches is what shows.
    pq.write_table(table, path, use_dictionary=use_dictionary, write_batch_size=1)
    del table
    with allocated() as memory:
        lengths = [n for _, records in blocks_of(path) for n in text_lengths(records)]
    assert lengths == list(map(len, texts))
    assert memory.peak_bytes < 16 * BATCH_BYTES  # of 49 MB


def text_lengths(records):
    return pc.binary_length(records.batch.column(0)).to_pylist()


@pytest.mark.parametrize("batch_bytes", [1, 100, 5_000, 1 << 20])
def test_rows_and_places_do_not_depend_on_the_size_of_blocks(tmp_path, read, batch_bytes):
    path = tmp_path / "a.parquet"
    texts = [None if i % 7 == 0 else "y" * (i % 50) for i in range(1_500)]
    pq.write_table(pa.table({"text": texts}), path, row_group_size=400)
    found = read(path, schema=TEXT, batch_bytes=batch_bytes)
    assert [row["text"] for row in found.rows] == texts
    assert found.places == [RecordPlace(i + 1, -1) for i in range(1_500)]
    assert found.input_bytes == path.stat().st_size


def test_a_row_over_the_limit_is_one_reject(tmp_path, read):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", "b" * 3_000, "c"]}), path)
    found = read(path, schema=TEXT, max_record_bytes=2_000, batch_bytes=1_000)
    assert [row["text"] for row in found.rows] == ["a", "c"]
    ((line, _, reason, raw),) = found.rejects
    assert (line, reason) == (2, "record too large")
    assert raw == b'{"text": "' + b"b" * (1024 - 10)
    sections = [[{"title": "b" * 1_500, "content": "c" * 1_500}], [{"title": "d", "content": ""}]]
    pq.write_table(pa.table({"title": ["a", "b"], "sections": sections}), path)
    found = read(path, max_record_bytes=2_000)
    assert [row["title"] for row in found.rows] == ["b"]
    assert found.messages == ["3,001 bytes, over max_record_bytes = 2000"]


def footers(data):
    """Yield the file once for each byte of its footer, with that byte changed."""
    length = int.from_bytes(data[-8:-4], "little")
    for i in range(len(data) - 8 - length, len(data) - 8):
        yield data[:i] + bytes([data[i] ^ 0x0F]) + data[i + 1 :]


def test_a_damaged_footer_is_read_or_refused(tmp_path, read):
    path = tmp_path / "a.parquet"
    sections = [[{"title": f"s{i}", "content": "猫" * i}] for i in range(5)]
    pq.write_table(pa.table({"title": [f"t{i}" for i in range(5)], "sections": sections}), path)
    refused = 0
    for data in footers(path.read_bytes()):
        path.unlink()  # pyarrow may still read the last one
        path.write_bytes(data)
        try:
            read(path, schema=TITLES)
        except StorageError:
            refused += 1
    assert refused > 100
