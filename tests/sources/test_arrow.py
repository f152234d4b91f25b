from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from tokmill.errors import StorageError
from tokmill.settings.schema import InputSettings
from tokmill.sources.arrow import layout
from tokmill.sources.files import Slice, SourceFile
from tokmill.sources.formats import cut, open_slice
from tokmill.values import RecordPlace

TITLES = pa.schema([("title", pa.string())])


def arrow_file(path, make):
    table = pa.table({"id": list(range(10)), "title": [f"t{i}" for i in range(10)]})
    with make(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)
    return SourceFile(path.as_posix(), "arrow", "", path.stat().st_size, 0, "")


@pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
def test_slices_of_batches_give_each_row_once(make, tmp_path, read_piece):
    file = arrow_file(tmp_path / "a.arrow", make)
    assert layout(file.path) == (["id", "title"], [3, 3, 3, 1])
    for part_bytes in (1, file.n_bytes // 2, file.n_bytes):
        pieces = cut(file, part_bytes)
        parts = [read_piece(piece, schema=TITLES, batch_bytes=8) for piece in pieces]
        assert [row["title"] for part in parts for row in part.rows] == [f"t{i}" for i in range(10)]
        places = [place for part in parts for place in part.places]
        assert places == [RecordPlace(i + 1, -1) for i in range(10)]
        assert sum(part.input_bytes for part in parts) == file.n_bytes


@pytest.mark.parametrize("data", [b"not arrow at all", b"ARROW1\x00\x00" + bytes(40)])
def test_what_is_no_arrow_file_is_a_storage_error(data, tmp_path, read):
    (tmp_path / "a.arrow").write_bytes(data)
    with pytest.raises(StorageError, match=r"a\.arrow: expected a complete Arrow file"):
        read(tmp_path / "a.arrow", schema=TITLES)


LONG = "x" * 10_000


def repeated(n_rows):
    """Return a column of one long text, which a dictionary holds once."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * n_rows, pa.int32()), pa.array([LONG]))


@pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
def test_a_batch_of_a_dictionary_is_decoded_a_block_at_a_time(make, tmp_path, allocated):
    table = pa.table({"title": repeated(6_000)})
    path = tmp_path / "a.arrow"
    with make(path, table.schema) as writer:
        writer.write_table(table)
    assert path.stat().st_size < 200_000
    file = SourceFile(path.as_posix(), "arrow", "", path.stat().st_size, 0, "")
    piece = Slice(file, 0, -1, file.n_bytes)
    n_rows = 0
    with allocated() as memory, open_slice(piece, InputSettings(), TITLES, 1 << 20) as reader:
        for block in reader.blocks():
            assert block.n_bytes <= 1 << 20
            n_rows += block.parse().batch.num_rows
    assert n_rows == 6_000
    assert memory.peak_bytes < 12 << 20  # of 60 MB


def test_a_large_batch_is_read_a_block_at_a_time(tmp_path):
    table = pa.table({"title": [LONG] * 1000})
    path = tmp_path / "a.arrow"
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    file = SourceFile(path.as_posix(), "arrow", "", path.stat().st_size, 0, "")
    whole = Slice(file, 0, -1, file.n_bytes)
    with open_slice(whole, InputSettings(), TITLES, 1 << 20) as reader:
        sizes = [block.parse().batch.nbytes for block in reader.blocks()]
    assert sum(sizes) > 1000 * len(LONG)
    assert max(sizes) <= 1 << 20


def test_rows_of_several_batches_of_dictionaries_make_one_block(tmp_path, read):
    batches = [
        pa.RecordBatch.from_pydict({"title": pa.array(texts).dictionary_encode()})
        for texts in (["a", "b", "a"], ["b", None], ["c"])
    ]
    path = tmp_path / "a.arrow"
    with pa.ipc.new_stream(path, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    expected = [{"title": text} for text in ("a", "b", "a", "b", None, "c")]
    for batch_bytes in (1, 20, 1 << 20):
        assert read(path, schema=TITLES, batch_bytes=batch_bytes).rows == expected


def test_dictionaries_of_structs_in_a_list_are_decoded(tmp_path, read, schema):
    entries = pa.array([{"title": "x", "content": "y"}, {"title": "z", "content": None}])
    inside = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int32()), entries)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), inside)
    batch = pa.record_batch([pa.array(["a", "b"]), lists], names=["title", "sections"])
    with pa.ipc.new_file(tmp_path / "a.arrow", batch.schema) as writer:
        writer.write_batch(batch)
    x, z = entries.to_pylist()
    found = read(tmp_path / "a.arrow", schema=schema)
    assert [row["sections"] for row in found.rows] == [[x], [z, x]]


def test_two_columns_of_one_name_are_refused(tmp_path, read):
    path = tmp_path / "a.arrow"
    table = pa.table([pa.array(["a"]), pa.array(["b"])], names=["title", "title"])
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(StorageError, match=r"a\.arrow: has 2 columns named 'title', expected one"):
        read(path)


def test_a_child_of_negative_length_is_a_storage_error(tmp_path, read):
    """Found by fuzzing: a view of the column is sound, and pyarrow reads outside of its memory."""
    kind = pa.list_(pa.struct([("title", pa.null()), ("content", pa.string())]))
    table = pa.table({"sections": pa.array([[{"title": None, "content": "a"}]], kind)})
    path = tmp_path / "a.arrow"
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    data = path.read_bytes()
    node = struct.pack("<qq", 1, 1)  # the length and the nulls of the child without buffers
    assert data.count(node) == 1
    path.write_bytes(data.replace(node, struct.pack("<qq", -1, 1)))
    with pytest.raises(StorageError, match=r"a\.arrow: expected a complete Arrow file"):
        read(path)


def test_a_batch_that_claims_too_many_rows_is_a_storage_error(tmp_path, read):
    """Found by fuzzing: nulls take no bytes, and memory for so many rows was asked for."""
    path = tmp_path / "a.arrow"
    n_rows = 0x1234_5678_9ABC
    batch = pa.record_batch([pa.nulls(77)], names=["other"])
    with pa.ipc.new_file(path, batch.schema) as writer:
        writer.write_batch(batch)
    path.write_bytes(path.read_bytes().replace(struct.pack("<q", 77), struct.pack("<q", n_rows)))
    with pytest.raises(StorageError, match=rf"a\.arrow: .* claims {n_rows:,}: the file is damaged"):
        read(path)


def test_a_column_whose_name_is_no_utf8_is_a_storage_error(tmp_path, read):
    path = tmp_path / "a.arrow"
    table = pa.table({"title": ["a"]})
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    path.write_bytes(path.read_bytes().replace(b"title", b"t\x9btle"))
    with pytest.raises(
        StorageError, match=r"a\.arrow: expected a complete Arrow file: 'utf-8' codec"
    ):
        read(path)
