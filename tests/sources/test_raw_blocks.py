from __future__ import annotations

from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokmill.settings.schema import InputSettings
from tokmill.sources.blocks import Reading
from tokmill.sources.formats import open_slice
from tokmill.sources.json_formats import open_lines
from tokmill.sources.slices import Slice, SourceFile
from tokmill.sources.streams import BrokenInputError
from tokmill.values import RecordPlace, UnreadInput


@pytest.fixture
def split(tmp_path):
    """Returns the blocks of a file whose bytes come in these chunks."""
    path = tmp_path / "chunks.jsonl"
    path.write_bytes(b"0123456789")

    def blocks_of(chunks, batch_bytes=4, limit=10):
        settings = InputSettings(max_record_bytes=limit)
        reading = Reading(settings, pa.schema([]), batch_bytes)
        whole = Slice(SourceFile(str(path), "jsonl", "", 10, 0, ""), 0, -1, 10)
        with closing(open_lines(whole, reading, convert=lambda _: iter(chunks))) as reader:
            return list(reader.blocks())

    return blocks_of


@pytest.fixture
def rows_of_blocks(tmp_path):
    """Writes 6,000 records of 2 kB, and returns how many of them each block of 4 MiB has."""

    def count(name):
        path, texts = tmp_path / name, ["x" * 2000] * 6000
        if name == "a.parquet":
            pq.write_table(pa.table({"text": texts}), path, use_dictionary=False)
        else:
            path.write_bytes(b'{"text":"%s"}\n' % texts[0].encode() * len(texts))
        n_bytes = path.stat().st_size
        file = SourceFile(str(path), path.suffix[1:], "", n_bytes, 0, "")
        schema = pa.schema([("text", pa.string())])
        whole = Slice(file, 0, -1, n_bytes)
        with open_slice(whole, InputSettings(), schema, 4 << 20) as reader:
            return [block.parse().batch.num_rows for block in reader.blocks()]

    return count


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_the_first_and_last_blocks_of_a_file_are_small(rows_of_blocks, name):
    n_rows = rows_of_blocks(name)
    assert sum(n_rows) == 6000
    assert n_rows[-1] * 3 < max(n_rows)
    assert n_rows[0] * 3 < max(n_rows)


def broken(*chunks):
    yield from chunks
    raise BrokenInputError("cut off", "why", 7)


@pytest.mark.parametrize("batch_bytes", [1, 8, 100])
def test_a_record_over_the_limit_that_breaks_off_is_unread_and_no_reject(batch_bytes, split):
    blocks = split(broken(b"a\n", b"x" * 15, b"y" * 90), batch_bytes)
    assert b"".join(block.data for block in blocks) == b"a\n"
    assert all(not block.after for block in blocks)
    assert blocks[-1].unread == UnreadInput(RecordPlace(2, 2), "cut off", "why", 105, 7, 3)
