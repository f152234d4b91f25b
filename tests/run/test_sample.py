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
    encoded_sample,
    read_sample,
    sampled_texts,
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


def test_a_sample_is_the_same_every_time(read, tmp_path, write_rows):
    path = write_rows(tmp_path / "a.jsonl", ROWS)
    assert texts(read(50_000, path)) == texts(read(50_000, path))


def test_long_records_are_met_and_a_file_of_one_is_read(read, tmp_path, write_rows):
    rows = [{"text": "word " * 40_000 + str(i)} for i in range(40)]
    found = read(1 << 20, write_rows(tmp_path / "a.jsonl", rows))
    assert 8 <= len(texts(found)) <= 20
    assert n_records(found) == pytest.approx(40, rel=0.6)
    assert len(texts(read(1 << 16, write_rows(tmp_path / "b.jsonl", rows[:1])))) == 1


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
    found = read(path.stat().st_size - 1, path)
    assert not found.is_complete
    assert not found.heads_only
    assert n_records(found) == pytest.approx(len(ROWS), rel=0.1)


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_compressed_file_is_as_large_as_it_says_however_its_head_is_packed(read, tmp_path, kind):
    pack = {"gz": gzip.compress, "zst": zstd.compress}[kind]
    generator = random.Random(1)
    noise = [{"text": generator.randbytes(500).hex()} for _ in range(4000)]
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in [*noise, *noise[:3000]])
    path = tmp_path / f"a.jsonl.{kind}"
    path.write_bytes(pack(lines))
    found = read(20_000, path)
    assert found.heads_only
    assert n_bytes(found) == pytest.approx(len(lines), rel=0.01)


def test_a_stated_size_of_the_last_member_alone_is_ignored(read, tmp_path):
    path = tmp_path / "a.jsonl.gz"
    lines = b"".join(LINES)
    path.write_bytes(gzip.compress(lines * 20) + gzip.compress(lines))
    found = read(20_000, path)
    assert found.heads_only
    assert n_bytes(found) == pytest.approx(len(lines) * 21, rel=0.3)


def test_a_small_file_that_unpacks_to_far_more_is_not_read_completely(read, tmp_path):
    again = json.dumps({"text": "again " * 2000}).encode() + b"\n"
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(again * 40_000))
    found = read(1 << 20, tmp_path / "a.jsonl.gz")
    assert not found.is_complete
    assert found.heads_only
    assert 0 < len(texts(found)) < 3000


def test_many_files_without_places_inside_have_the_same_chance_whatever_their_size(read, tmp_path):
    (tmp_path / "many").mkdir()
    for i in range(300):
        (tmp_path / "many" / f"{i:03d}.txt").write_text("x" * (1000 if i % 3 == 0 else 10))
    found = read(10_000, tmp_path / "many")
    assert len(found.pieces) == 128
    large = sum(len(text) == 1000 for text in texts(found))
    assert large / len(found.pieces) == pytest.approx(1 / 3, abs=0.05)
    assert n_records(found) == pytest.approx(300, rel=0.05)


def test_the_texts_of_a_sample_say_how_much_text_there_is(configure, tmp_path, write_rows):
    path = write_rows(tmp_path / "a.jsonl", ROWS)
    prepared = prepare(configure(tmp_path / "out", path))
    texts, n_bytes = sampled_texts(prepared.parts, prepared.renderers(), 100_000)
    assert set(texts) <= {row["text"] for row in ROWS}
    expected = sum(len(row["text"]) for row in ROWS)
    assert n_bytes == pytest.approx(expected, rel=0.05)


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


def error(found: Estimate) -> float:
    """Return e: the band is the value divided and multiplied by 1 + e."""
    return max(found.high / found.value, found.value / found.low) - 1


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


def test_sorted_input_has_a_narrow_band_and_mixed_input_a_wide_one():
    kinds = [2000] * 64 + [6000] * 64
    mixed = np.random.default_rng(1).permutation(kinds)
    assert error(total_of(kinds, 10)) < 0.1 < error(total_of(mixed, 10))
    assert error(total_of([4000] * 20, 10)) == pytest.approx(0.01, abs=1e-3)
    assert error(total_of([4000] * 3, 10)) == pytest.approx(1, abs=1e-3)


def test_what_was_not_looked_at_may_differ_by_a_factor_of_two():
    assert error(total_of([4000] * 20, 10, unread=0.5)) == pytest.approx(0.5, abs=1e-3)


def test_a_sample_is_encoded_as_the_run_would_piece_by_piece(
    tmp_path, configure, plan_of, write_rows
):
    first = write_rows(tmp_path / "a.jsonl", [{"text": "a" * 9}, {"text": "b"}, b"{bad"])
    second = write_rows(tmp_path / "b.jsonl", [{"text": "猫 is a cat"}])
    config = configure(tmp_path / "out", first, second, min_tokens=2)
    prepared, spec = prepare(config), plan_of(config).spec
    encoded = encoded_sample(spec, prepared.parts, prepared.renderers(), 1 << 20)
    counts, totals = [piece.counts for piece in encoded.pieces], encoded.totals()
    assert [(c.records, c.documents, c.text_bytes) for c in counts] == [(3, 1, 9), (1, 1, 12)]
    assert totals.tokens == encoded.lengths.sum()
    assert (totals.drops.total(), totals.rejects.total()) == (1, 1)
    assert encoded.first_reject.startswith(f"{first}: ")
    assert not encoded.is_val.any()
