from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokmill.batch import Place
from tokmill.errors import StorageError, UsageError
from tokmill.sources.files import Slice, SourceFile
from tokmill.sources.slices import cut

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
        assert places == [Place(i + 1, -1) for i in range(10)]
        assert sum(piece.n_bytes for piece in pieces) == file.n_bytes
        assert sum(part.input_bytes for part in parts) == file.n_bytes
    assert len(cut(file, 1)) == 4


def test_a_slice_can_be_read_again_from_any_row(tmp_path, read_piece):
    file = parquet(tmp_path / "a.parquet")
    piece = Slice(file, 1, 4, 100)
    whole = read_piece(piece, schema=TITLES)
    for i, place in enumerate(whole.slice_places):
        rest = read_piece(piece, schema=TITLES, start=place)
        assert (rest.rows, rest.places) == (whole.rows[i:], whole.places[i:])


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
        with pytest.raises(StorageError, match=r"a\.parquet: expected a whole Parquet file"):
            read(path, schema=TITLES)


def test_nested_columns_are_read_by_their_name(tmp_path, read, schema):
    sections = pa.array([[{"content": "c", "x": 1, "title": "t"}], None])
    pq.write_table(pa.table({"sections": sections}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", schema=schema).rows == [
        {"title": None, "sections": [{"title": "t", "content": "c"}]},
        {"title": None, "sections": None},
    ]
