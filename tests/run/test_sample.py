from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokmill.dataset.counts import Counts
from tokmill.run.prepare import prepare
from tokmill.run.sample import (
    Estimate,
    InputSample,
    SampledPiece,
    read_sample,
)
from tokmill.sources.slices import SourceFile
from tokmill.sources.streams import zstd

ROWS = [{"text": f"{i:05d} " + "word " * (i * 7 % 40)} for i in range(4000)]
LINES = [json.dumps(row).encode() + b"\n" for row in ROWS]


@pytest.fixture
def read(configure):
    """Return a function that samples files with a limit."""

    def make(limit_bytes: int, *paths: Path, **settings) -> InputSample:
        prepared = prepare(configure(paths[0].parent / "out", *paths, **settings))
        return read_sample(prepared.parts, prepared.renderers(), limit_bytes)

    return make


def texts(found: InputSample) -> list[str]:
    batches = [block.parse().batch for piece in found.pieces for block in piece.blocks]
    return [text for batch in batches for text in batch.column("text").to_pylist()]


def n_records(found: InputSample) -> float:
    """Return the estimated records of all the input."""
    counts = [sum(b.parse().batch.num_rows for b in piece.blocks) for piece in found.pieces]
    scales = [piece.record_scale for piece in found.pieces]
    return sum(count * scale for count, scale in zip(counts, scales, strict=True))


def n_bytes(found: InputSample) -> float:
    """Return the estimated bytes of all the input, unpacked."""
    return sum(piece.n_bytes * piece.scale for piece in found.pieces)


def test_an_input_within_the_limit_is_read_completely(read, tmp_path, write_rows):
    paths = [
        write_rows(tmp_path / "a.jsonl", [*ROWS[:3], b"{bad"]),
        write_rows(tmp_path / "b.jsonl", ROWS[3:5]),
    ]
    found = read(1 << 20, *paths)
    assert texts(found) == [row["text"] for row in ROWS[:5]]
    assert found.is_complete
    assert found.read_bytes == sum(path.stat().st_size for path in paths)
    assert not found.heads_only


@pytest.mark.parametrize("part_bytes", [1 << 30, 20_000])
def test_a_larger_one_is_sampled_all_over_within_the_limit(read, tmp_path, write_rows, part_bytes):
    path = write_rows(tmp_path / "a.jsonl", ROWS)
    size = path.stat().st_size
    found = read(size // 4, path, part_bytes=part_bytes)
    assert size // 8 < found.read_bytes < size // 4 + 20_000
    assert {int(text[:5]) * 5 // len(ROWS) for text in texts(found)} == set(range(5))
    assert n_records(found) == pytest.approx(len(ROWS), rel=0.1)
    assert n_bytes(found) == pytest.approx(size)
    assert not found.heads_only
    assert not found.is_complete


def test_a_file_that_is_named_twice_counts_twice(read, tmp_path, write_rows):
    path = write_rows(tmp_path / "a.jsonl", ROWS)
    size = path.stat().st_size
    assert n_bytes(read(size // 4, path, path)) == pytest.approx(2 * size)


def many_files(folder: Path, rows: list[dict], ending: str = "\n") -> Path:
    """Write each row to a file of its own."""
    folder.mkdir()
    for i, row in enumerate(rows):
        (folder / f"{i:05d}.jsonl").write_text(json.dumps(row) + ending)
    return folder


@pytest.mark.parametrize("ending", ["\n", ""])
def test_files_of_one_record_are_sampled_like_one_file_of_all_records(read, tmp_path, ending):
    folder = many_files(tmp_path / "many", ROWS[:1500], ending)
    size = sum(path.stat().st_size for path in folder.iterdir())
    found = read(size // 4, folder)
    assert size // 8 < found.read_bytes < size // 3
    assert n_records(found) == pytest.approx(1500, rel=0.1)


@pytest.mark.parametrize("kind", ["gz", "zst", "parquet", "csv"])
def test_a_file_that_is_read_from_its_beginning_is_sampled_all_over(read, tmp_path, kind):
    path = tmp_path / f"a.jsonl.{kind}"
    if kind == "parquet":
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"text": [row["text"] for row in ROWS]}), path)
    elif kind == "csv":
        path = tmp_path / "a.csv"
        path.write_text("text\n" + "".join(f"{row['text']}\n" for row in ROWS))
    else:
        pack = {"gz": gzip.compress, "zst": zstd.compress}[kind]
        path.write_bytes(pack(b"".join(LINES)))
    size = path.stat().st_size
    found = read(size // 4, path)
    assert not found.is_complete
    assert not found.heads_only
    assert 0 < found.read_bytes < size  # of the blocks that are kept: others say nothing
    assert n_records(found) == pytest.approx(len(ROWS), rel=0.1)


def test_a_file_of_which_every_block_is_kept_is_complete_and_has_no_band(read, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text\n" + "".join(f"{row['text']}\n" for row in ROWS))
    size = path.stat().st_size
    found = read(size - 1, path)
    assert found.is_complete
    assert found.read_bytes == size
    assert n_records(found) == len(ROWS)


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_compressed_file_is_as_large_as_it_says_however_its_head_is_packed(read, tmp_path, kind):
    pack = {"gz": gzip.compress, "zst": zstd.compress}[kind]
    generator = random.Random(1)
    noise = [{"text": generator.randbytes(500).hex()} for _ in range(4000)]
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in [*noise, *noise[:3000]])
    path = tmp_path / f"a.jsonl.{kind}"
    # zstandard: of several frames, each of which states its size
    half = len(lines) // 2
    pieces = [lines] if kind == "gz" else [lines[:half], lines[half:]]
    path.write_bytes(b"".join(map(pack, pieces)))
    found = read(20_000, path)
    assert found.heads_only
    assert n_bytes(found) == pytest.approx(len(lines), rel=0.01)


def test_a_small_file_that_unpacks_to_far_more_is_not_read_completely(read, tmp_path):
    again = json.dumps({"text": "again " * 2000}).encode() + b"\n"
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(again * 40_000))
    found = read(1 << 20, tmp_path / "a.jsonl.gz")
    assert not found.is_complete
    assert found.heads_only
    assert 0 < len(texts(found)) < 3000


# What a sample says about all of the input

WINDOW = 16_384
FILE = SourceFile("a.jsonl", "jsonl", "", 0, 0, "")


def total_of(tokens, scale: float, *, unread: float = 0.0, **more) -> Estimate:
    """Return the total of pieces of one window each that stand for `scale` windows."""
    scales = (scale, scale, unread)
    pieces = [
        SampledPiece(FILE, [], i, WINDOW, WINDOW, *scales, Counts(tokens=n))
        for i, n in enumerate(tokens)
    ]
    return InputSample(pieces, **more).total("tokens")


def test_what_was_read_whole_is_counted_and_has_no_band():
    assert total_of([10, 20], 1, is_complete=True) == Estimate(30, 30, 30)


@pytest.mark.parametrize("n", [12, 60])
@pytest.mark.parametrize("spread", [0.1, 0.5])
def test_the_band_of_a_sample_holds_the_truth(n, spread):
    rng = np.random.default_rng(5)
    tokens = (4000 * rng.lognormal(0, spread, 4000)).astype(np.int64)
    held = 0
    for _ in range(300):
        band = total_of(tokens[rng.choice(len(tokens), n, replace=False)], len(tokens) / n)
        held += band.low <= tokens.sum() <= band.high
    assert held >= 0.98 * 300
