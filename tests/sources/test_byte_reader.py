from __future__ import annotations

import gzip
import io
import json
import os
import random
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokmill.sources.byte_reader import lines_before
from tokmill.sources.files import Slice, SourceFile
from tokmill.sources.formats import cut
from tokmill.sources.streams import (
    CHUNK_BYTES,
    BrokenInputError,
    ByteStream,
    zstd,
)
from tokmill.values import RecordPlace

RECORDS = [
    {
        "title": "一",
        "sections": [{"title": "a", "content": "b\nc"}, {"title": None, "content": ""}],
    },
    {"title": "", "sections": []},
    {"title": 'quotes " and \\ and , [ ] { }', "sections": None},
    {"title": None, "sections": [{"title": "x" * 100, "content": "\u2028é"}]},
    {"title": "last", "sections": [{"title": "t", "content": "\\\\"}]},
]
LINES = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in RECORDS).encode()


def jsonl(path, data):
    path.write_bytes(data)
    return SourceFile(path.as_posix(), "jsonl", "", len(data), 0, "")


def frames(*pieces):
    return b"".join(zstd.compress(piece) for piece in pieces)


def csv_cell(value):
    return "" if value is None else '"' + value.replace('"', '""') + '"'


def containers(folder):
    compact = [json.dumps(record, ensure_ascii=False) for record in RECORDS]
    (folder / "a.jsonl").write_bytes(LINES)
    (folder / "bom.jsonl").write_bytes(b"\xef\xbb\xbf" + LINES.replace(b"\n", b"\r\n").rstrip())
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(LINES[:50]) + gzip.compress(LINES[50:]))
    (folder / "a.jsonl.zst").write_bytes(frames(LINES[:33], LINES[33:34], b"", LINES[34:]))
    (folder / "compact.json").write_text("[" + ",".join(compact) + "]", encoding="utf-8")
    (folder / "pretty.json").write_text(
        json.dumps(RECORDS, ensure_ascii=False, indent=2), encoding="utf-8"
    )
    (folder / "a.json.gz").write_bytes(gzip.compress((folder / "pretty.json").read_bytes()))
    (folder / "mark.json").write_bytes(b"\xef\xbb\xbf \r\n" + (folder / "pretty.json").read_bytes())
    text = "title,sections\n"
    for record in RECORDS:
        cell = None if record["sections"] is None else json.dumps(record["sections"])
        text += f"{csv_cell(record['title'])},{csv_cell(cell)}\n"
    (folder / "a.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    (folder / "a.csv.zst").write_bytes(frames(text.encode()))
    pq.write_table(pa.Table.from_pylist(RECORDS), folder / "a.parquet", row_group_size=2)
    return sorted(folder.iterdir())


def test_every_container_gives_the_same_rows_at_every_batch_size(tmp_path, read):
    for path in containers(tmp_path):
        expected = [dict(record) for record in RECORDS]
        if ".csv" in path.name:  # text columns of CSV know no null
            expected[3]["title"] = ""
        for batch_bytes in (1, 7, 64, 1 << 20):
            found = read(path, batch_bytes=batch_bytes)
            assert found.rejects == [], path
            assert found.rows == expected, path
            assert [place.line for place in found.places] == [1, 2, 3, 4, 5]
            assert found.input_bytes == path.stat().st_size


DIRTY = (
    '\ufeff{"title": "一"}\n\n  {"title": "b"} \r\nnull\n'
    '{"title": 1}\n{"title": "c"}\n\n{"title": "d"}'
).encode()
AFTER_BOM = 3
"""No slice ends inside a byte order mark."""


@pytest.mark.parametrize("data", [DIRTY, b"\n\n" + DIRTY[3:] + b"\n\n\n"])
@pytest.mark.parametrize("batch_bytes", [1, 1 << 20])
def test_slices_cut_at_every_byte_give_each_record_once(data, batch_bytes, tmp_path, read_piece):
    file = jsonl(tmp_path / "a.jsonl", data)
    whole = read_piece(Slice(file, 0, -1, len(data)))
    assert [row["title"] for row in whole.rows] == ["一", "b", "c", "d"]
    for i in (0, *range(AFTER_BOM, len(data) + 1)):
        bounds = [(0, i), (i, len(data))]
        check_slices(file, [b for b in bounds if b[0] < b[1]], whole, batch_bytes, read_piece)


def check_slices(file, bounds, whole, batch_bytes, read_piece):
    parts = [
        read_piece(Slice(file, start, stop, stop - start), batch_bytes=batch_bytes)
        for start, stop in bounds
    ]
    assert [row for part in parts for row in part.rows] == whole.rows
    assert [place for part in parts for place in part.places] == whole.places
    assert [reject for part in parts for reject in part.rejects] == whole.rejects
    assert [unread for part in parts for unread in part.unread] == whole.unread


def test_zstandard_frames_cut_anywhere_give_each_record_once(tmp_path, read_piece):
    path = tmp_path / "a.jsonl.zst"
    for i in range(AFTER_BOM, len(DIRTY)):
        pieces = [DIRTY[:i], DIRTY[i : i + 9], DIRTY[i + 9 :]]
        data = frames(*pieces)
        path.write_bytes(data)
        file = SourceFile(path.as_posix(), "jsonl", "zst", len(data), i, "")
        whole = read_piece(Slice(file, 0, -1, len(data)))
        assert [row["title"] for row in whole.rows] == ["一", "b", "c", "d"]
        bounds = [(piece.start, piece.stop) for piece in cut(file, 1)]
        assert len(bounds) == 3
        check_slices(file, bounds, whole, 1 << 20, read_piece)


@pytest.mark.parametrize("batch_bytes", [1, 5, 30, 1 << 20])
def test_a_record_over_the_limit_is_one_reject_at_every_batch_size(batch_bytes, tmp_path, read):
    big = b'{"title": "' + b"x" * 3000 + b'"}'
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"title": "a"}\n' + big + b'\n{"title": "b"}\n' + big)
    found = read(path, batch_bytes=batch_bytes, max_record_bytes=20)
    assert [row["title"] for row in found.rows] == ["a", "b"]
    assert [place.line for place in found.places] == [1, 3]
    assert found.rejects == [
        (2, 15, "record too large", big[:1024]),
        (4, 15 + 3013 + 1 + 15, "record too large", big[:1024]),
    ]
    assert found.messages == ["3,013 bytes, over max_record_bytes = 20"] * 2


def text_of(n_lines, first=0):
    return b"".join(b'{"title": "%06d"}\n' % i for i in range(first, first + n_lines))


@pytest.mark.parametrize("aligned", [True, False])
def test_a_corrupt_frame_costs_its_slice_alone_and_every_byte_is_counted(
    aligned, tmp_path, read_piece
):
    text = text_of(4000)
    step = len(text) // 4 + (0 if aligned else 7)
    stored = [zstd.compress(text[i : i + step]) for i in range(0, len(text), step)]
    starts = [sum(map(len, stored[:i])) for i in range(len(stored))]
    damaged = bytearray(b"".join(stored))
    damaged[starts[1] + 4 : starts[1] + 12] = bytes(8)  # nothing of it can be unpacked
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(damaged)
    file = SourceFile(path.as_posix(), "jsonl", "zst", len(damaged), 0, "")
    bounds = [*starts, len(damaged)]
    pieces = [Slice(file, a, b, b - a) for a, b in pairwise(bounds)]
    found = [read_piece(piece) for piece in pieces]
    assert [reject for part in found for reject in part.rejects] == []
    lost = [unread for part in found for unread in part.unread]
    # The line that runs into the broken frame is text that was read; the frame was not.
    open_bytes = 0 if aligned else len(text[:step]) % len(text_of(1))
    assert sum(unread[3] for unread in lost) == open_bytes
    assert sum(unread[5] for unread in lost) == starts[2] - starts[1]
    assert [len(part.unread) for part in found] == [
        0 if aligned else 1,
        1,
        *([0] * (len(found) - 2)),
    ]
    again = [read_piece(piece, batch_bytes=1000) for piece in reversed(pieces)]
    assert again[::-1] == found


def test_zero_padding_behind_gzip_data_is_no_error(tmp_path, read):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"title": "a"}\n') + bytes(512))
    assert read(path).rejects == []


def test_files_of_zero_bytes_hold_no_records(tmp_path, read):
    names = [
        "a.jsonl",
        "a.jsonl.gz",
        "a.jsonl.zst",
        "a.json",
        "a.csv",
        "a.csv.gz",
        "a.txt",
        "a.parquet",
        "a.arrow",
    ]
    for name in names:
        (tmp_path / name).touch()
        found = read(tmp_path / name)
        assert (found.rows, found.rejects) == ([], [])


def test_standard_input_is_read_as_lines(monkeypatch, read_piece):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(LINES)))
    found = read_piece(Slice(SourceFile("-", "jsonl", "", 0, 0, ""), 0, -1, 0), batch_bytes=10)
    assert found.rows == RECORDS
    assert found.places[0] == RecordPlace(1, 0)
    assert found.input_bytes == len(LINES)


def test_an_origin_is_the_same_whatever_was_known_before(tmp_path):
    lines = [b"a\n", b"bb\n", b"ccc" * 9, b"\n", b"", b"dd\nee\nf", b"g\nhh\n"]
    frames = [zstd.compress(line) for line in lines]
    bounds = [sum(map(len, frames[:i])) for i in range(len(frames) + 1)]
    chance, whole = random.Random(0), b"".join(frames)
    files = [whole]
    for i in chance.choices(range(1, len(frames)), k=100):
        head = chance.choice((frames[i][:4], b""))
        files.append(whole[: bounds[i]] + head + chance.randbytes(9) + whole[bounds[i + 1] :])
    path, n_pieces = tmp_path / "a.zst", set()
    for number, data in enumerate(files):
        path.write_bytes(data)
        file = SourceFile(path.as_posix(), "jsonl", "zst", len(data), number, "")
        pieces = cut(file, 1)[1:]
        n_pieces.add(len(pieces))
        alone = [lines_before(piece) for piece in pieces[::-1]][::-1]
        for order in (pieces, pieces[::-1], pieces[2:] + pieces[:2]):
            found = {piece.start: lines_before(piece) for piece in order}
            assert [found[piece.start] for piece in pieces] == alone
    assert n_pieces >= {2, 3, 4, 5, 6}


# Streams


DATA = os.urandom(1000) * 5000


@pytest.mark.parametrize(
    ("compression", "compress"), [("", bytes), ("gz", gzip.compress), ("zst", zstd.compress)]
)
def test_chunks_are_bounded_and_whole(compression, compress, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(compress(DATA))
    stream = ByteStream(str(path), compression)
    chunks = list(stream.inside())
    assert b"".join(chunks) == DATA
    assert all(0 < len(chunk) <= CHUNK_BYTES for chunk in chunks)
    assert stream.consumed == path.stat().st_size
    stream.close()


@pytest.mark.parametrize("codec", ["gz", "zst"])
def test_data_that_compresses_very_well_comes_in_bounded_chunks(codec, tmp_path):
    compress = gzip.compress if codec == "gz" else zstd.compress
    (tmp_path / "a").write_bytes(compress(bytes(20 << 20)))
    stream = ByteStream(str(tmp_path / "a"), codec)
    sizes = [len(chunk) for chunk in stream.inside()]
    stream.close()
    assert sum(sizes) == 20 << 20
    assert max(sizes) <= CHUNK_BYTES


def broken_at(path, codec, start=0):
    stream = ByteStream(str(path), codec, start)
    given = []
    with pytest.raises(BrokenInputError) as caught:
        given.extend(stream.inside())
    stream.close()
    return caught.value.reason, caught.value.stored_byte


def with_checksum(data: bytes) -> bytes:
    return bytes(zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1}))


@pytest.mark.parametrize(("codec", "compress"), [("gz", gzip.compress), ("zst", with_checksum)])
def test_a_break_is_told_by_the_stored_byte_where_unpacking_stopped(codec, compress, tmp_path):
    path = tmp_path / "a"
    whole = compress(os.urandom(200_000))
    path.write_bytes(whole[:-7])
    assert broken_at(path, codec) == ("cut off", len(whole) - 7)
    path.write_bytes(whole + b"no codec's data at all")
    assert broken_at(path, codec) == ("corrupt data", len(whole))
    # Of a wrong checksum the piece of 64 KiB that it ends is given up.
    path.write_bytes(whole[:-8] + bytes(8))
    assert broken_at(path, codec) == ("corrupt data", len(whole) >> 16 << 16)
