from __future__ import annotations

import gzip

import pyarrow as pa
import pytest

from tokmill.values import RecordPlace

TEXT = pa.schema([("text", pa.string()), ("title", pa.string())])


@pytest.fixture
def read_text(tmp_path, read):
    def read_data(data, name="a.txt", **options):
        (tmp_path / name).write_bytes(data)
        return read(tmp_path / name, **{"schema": TEXT, **options})

    return read_data


def texts(found):
    assert all(row["title"] is None for row in found.rows)
    return [row["text"] for row in found.rows]


@pytest.mark.parametrize("batch_bytes", [1, 3, 1 << 20])
def test_a_file_is_one_document(batch_bytes, read_text):
    data = "\ufeff一\n\r\n{二}\n".encode()
    found = read_text(data, batch_bytes=batch_bytes)
    assert texts(found) == ["一\n\r\n{二}\n"]
    assert found.places == [RecordPlace(1, 3)]
    assert texts(read_text(gzip.compress(data), "a.md.gz", batch_bytes=batch_bytes)) == texts(found)
    assert read_text(b" \n" * 100, batch_bytes=batch_bytes).rows == []


@pytest.mark.parametrize("batch_bytes", [*range(1, 9), 1 << 20])
def test_a_separator_cuts_a_file_into_documents(batch_bytes, read_text):
    data = "a\n\n\n b \n\n \n\n\n\n。c".encode()
    found = read_text(data, text_separator="\n\n", batch_bytes=batch_bytes)
    assert texts(found) == ["a", "\n b ", "。c"]
    assert found.places == [RecordPlace(1, 0), RecordPlace(2, 3), RecordPlace(5, 14)]
    assert found.raw == [b"a", b"\n b ", "。c".encode()]


@pytest.mark.parametrize("batch_bytes", [*range(1, 9), 1 << 20])
def test_documents_over_the_limit_or_not_utf8_are_rejects(batch_bytes, read_text):
    data = b"good==" + b"x" * 2000 + b"==\xff==five5==sixsix==good"
    found = read_text(data, text_separator="==", batch_bytes=batch_bytes, max_record_bytes=5)
    assert texts(found) == ["good", "five5", "good"]
    assert found.rejects == [
        (2, 6, "record too large", b"x" * 1024),
        (3, 2008, "invalid UTF-8", b"\xff"),
        (5, 2018, "record too large", b"sixsix"),
    ]
    assert found.messages[::2] == [f"{n:,} bytes, over max_record_bytes = 5" for n in (2000, 6)]
