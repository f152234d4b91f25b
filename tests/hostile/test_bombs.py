"""A small file that becomes a large one is refused in one line, and a person can allow it."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.sources.conftest import read_path
from tokmill.errors import StorageError
from tokmill.sources import streams
from tokmill.sources.streams import zstd

LINES = b'{"text": "a"}\n' * 12_000
TEXT = pa.schema([("text", pa.string())])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of the ratio begins at 100 kB."""
    monkeypatch.setattr(streams, "UNCHECKED_BYTES", 100_000)


def bombs(folder):
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(LINES))
    (folder / "a.jsonl.zst").write_bytes(zstd.compress(LINES))
    (folder / "a.txt.zst").write_bytes(zstd.compress(LINES))
    (folder / "a.csv.gz").write_bytes(gzip.compress(b"text\n" + b"a\n" * 60_000))
    (folder / "a.json.gz").write_bytes(gzip.compress(b"[" + LINES.replace(b"\n", b",\n") + b"{}]"))
    table = pa.table({"text": ["a" * 1000] * 300})
    pq.write_table(table, folder / "pages.parquet", use_dictionary=False, compression="zstd")
    pq.write_table(table, folder / "values.parquet", use_dictionary=True)
    return sorted(folder.iterdir())


def test_a_bomb_is_refused_with_its_name_and_what_allows_it(tmp_path):
    for path in bombs(tmp_path):
        with pytest.raises(StorageError) as error:
            read_path(path, schema=TEXT, max_decompression_ratio=50)
        assert str(error.value).startswith(str(path))
        assert "expected at most 50 bytes of data for each stored byte" in str(error.value)
        assert "input.max_decompression_ratio (0: no limit)" in str(error.value)


def test_without_the_limit_it_is_read(tmp_path):
    for path in bombs(tmp_path):
        assert read_path(path, schema=TEXT, max_decompression_ratio=0).rows


def test_a_frame_that_states_a_huge_size_is_no_reservation(tmp_path):
    stated = b"\x28\xb5\x2f\xfd\xe0" + (1 << 60).to_bytes(8, "little") + b"\x01\x00\x00"
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(stated)
    found = read_path(path, schema=TEXT)
    assert (found.rows, len(found.unread)) == ([], 1)
