from __future__ import annotations

import dataclasses
import gzip
import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokmill.run.forecast.read_sample import add_fragments, read_sample
from tokmill.run.forecast.sample import InputSample
from tokmill.run.prepare import prepare
from tokmill.sources import streams
from tokmill.sources.streams import zstd

ROWS = [{"text": f"{i:05d} " + "word " * (i * 7 % 40)} for i in range(4000)]


@pytest.fixture
def surveyed(configure):
    """Return a function that surveys files with a limit."""

    def make(limit_bytes: int, *paths: Path, at_random=False, **settings) -> InputSample:
        prepared = prepare(configure(paths[0].parent / "out", *paths, **settings))
        return read_sample(
            prepared.parts,
            prepared.renderers(),
            limit_bytes,
            at_random=at_random,
        )

    return make


def test_an_input_within_the_limit_is_read_completely(surveyed, tmp_path, write_rows):
    paths = [
        write_rows(tmp_path / "a.jsonl", [*ROWS[:3], b"{bad", {"text": ""}]),
        write_rows(tmp_path / "b.jsonl", ROWS[3:5]),
    ]
    found = surveyed(1 << 20, *paths)
    assert found.texts == [row["text"] for row in ROWS[:5]]
    assert found.n_rejects == 2
    assert found.input_bytes == sum(path.stat().st_size for path in paths)
    assert found.text_bytes == sum(len(row["text"]) for row in ROWS[:5])
    assert not found.heads_only


@pytest.mark.parametrize("part_bytes", [1 << 30, 20_000])
def test_a_larger_one_is_sampled_all_over_within_the_limit(
    surveyed, tmp_path, write_rows, part_bytes
):
    path = write_rows(tmp_path / "a.jsonl", ROWS)
    n_bytes = path.stat().st_size
    found = surveyed(n_bytes // 4, path, part_bytes=part_bytes)
    assert n_bytes // 8 < found.input_bytes < n_bytes // 4 + 20_000
    assert set(found.texts) <= {row["text"] for row in ROWS}
    numbers = [int(text[:5]) for text in found.texts]
    tenths = {number * 10 // len(ROWS) for number in numbers}
    assert len(tenths) >= 5
    assert abs(found.records_per_byte * n_bytes / len(ROWS) - 1) < 0.1
    assert not found.heads_only


def test_every_file_is_met(surveyed, tmp_path, write_rows):
    paths = [
        write_rows(tmp_path / name, [{"text": name + str(i)} for i in range(3000)])
        for name in ("a.jsonl", "b.jsonl", "c.jsonl")
    ]
    found = surveyed(80_000, *paths)
    assert {text[0] for text in found.texts} == {"a", "b", "c"}


def test_compressed_files_are_sampled_at_their_heads(surveyed, tmp_path):
    lines = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        (tmp_path / name).write_bytes(gzip.compress(lines))
    found = surveyed(4000, tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz")
    assert found.heads_only
    assert found.texts[0] == ROWS[0]["text"]
    assert found.window_bytes == 0
    assert found.records_per_byte == len(found.texts) / found.input_bytes
    add_fragments((), found, 1 << 20)
    assert found.fragments == []


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_a_compressed_file_is_as_large_as_it_says_however_its_head_is_packed(
    ending, surveyed, tmp_path
):
    pack = {"gz": gzip.compress, "zst": zstd.compress}[ending]
    generator = random.Random(1)
    noise = [{"text": generator.randbytes(500).hex()} for _ in range(1200)]
    rows = noise + [{"text": "a" * 1000}] * 800
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path = tmp_path / f"a.jsonl.{ending}"
    path.write_bytes(pack(lines))
    found = surveyed(100_000, path)
    size = path.stat().st_size
    assert found.input_bytes < found.stored_bytes == found.read_bytes < size
    assert found.records_per_byte * size == pytest.approx(2000, rel=0.01)


@pytest.mark.parametrize("part_bytes", [20_000, 1 << 30])
def test_a_file_of_many_frames_is_sampled_in_one_pass(configure, tmp_path, part_bytes, monkeypatch):
    n_read = [0]
    stored, size_of = streams.ByteStream._stored, zstd.get_frame_size

    def counted(stream, stop):
        for data in stored(stream, stop):
            n_read[0] += len(data)
            yield data

    def sized(frame):
        n_read[0] += size_of(frame)
        return size_of(frame)

    found = []
    for n_frames in (200, 800):
        path = tmp_path / f"{n_frames}.jsonl.zst"
        frame = zstd.compress("".join(json.dumps(row) + "\n" for row in ROWS[:40]).encode())
        path.write_bytes(frame * n_frames)
        prepared = prepare(configure(tmp_path / "out", path, part_bytes=part_bytes))
        n_read[0] = 0
        with monkeypatch.context() as patch:
            patch.setattr(streams.ByteStream, "_stored", counted)
            patch.setattr(streams.zstd, "get_frame_size", sized)
            limit_bytes = path.stat().st_size // 2
            sample = read_sample(prepared.parts, prepared.renderers(), limit_bytes)
        assert len(sample.texts) > 1000
        found.append(n_read[0] / path.stat().st_size)
    assert all(share < 2.1 for share in found)  # the frames once for their sizes, then to decode


def test_an_impossible_decompressed_size_is_ignored(surveyed, tmp_path):
    lines = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(lines) + gzip.compress(lines[: len(lines) // 2]))
    found = surveyed(40_000, path)
    assert found.input_bytes == found.stored_bytes


@pytest.mark.parametrize("ending", ["jsonl.gz", "jsonl.zst", "parquet"])
def test_a_file_that_decodes_to_far_more_bytes_is_not_sampled_completely(
    ending, surveyed, tmp_path
):
    path, n_records = tmp_path / f"a.{ending}", 20_000
    if ending == "parquet":
        pq.write_table(pa.table({"text": ["a" * 1000] * n_records}), path)
    else:
        pack = {"jsonl.gz": gzip.compress, "jsonl.zst": zstd.compress}[ending]
        path.write_bytes(pack((json.dumps({"text": "a" * 1000}) + "\n").encode() * n_records))
    limit_bytes = 100_000
    found = surveyed(limit_bytes, path)
    assert path.stat().st_size < limit_bytes
    assert 0 < found.text_bytes < 20 * limit_bytes < 1000 * n_records


def test_a_survey_is_the_same_every_time(surveyed, tmp_path, write_rows):
    path = write_rows(tmp_path / "a.jsonl", ROWS)
    assert surveyed(50_000, path) == surveyed(50_000, path)


def test_fragments_fill_what_the_records_left_of_the_limit(
    surveyed, configure, tmp_path, write_rows
):
    path = write_rows(tmp_path / "a.jsonl", ROWS)
    parts = prepare(configure(tmp_path / "out", path)).parts
    found = surveyed(40_000, path)
    before = dataclasses.replace(found, fragments=[])
    add_fragments(parts, found, 100_000)
    assert len(found.fragments) == (100_000 - found.input_bytes) // 1024
    assert found.read_bytes <= 100_000
    assert found.texts == before.texts
    data = path.read_text()
    assert all(fragment in data for fragment in found.fragments)
    add_fragments(parts, before, before.input_bytes - 1)
    assert before.fragments == []


def many_files(folder: Path, rows: list[dict], ending: str = "\n") -> Path:
    """Write each row to a file of its own."""
    folder.mkdir()
    for i, row in enumerate(rows):
        (folder / f"{i:05d}.jsonl").write_text(json.dumps(row) + ending)
    return folder


@pytest.mark.parametrize("ending", ["\n", ""])
def test_files_of_one_record_are_sampled_like_one_file_of_all_records(
    surveyed, configure, tmp_path, write_rows, ending
):
    folder = many_files(tmp_path / "many", ROWS[:1500], ending)
    n_bytes = sum(path.stat().st_size for path in folder.iterdir())
    found = surveyed(n_bytes // 4, folder)
    add_fragments(prepare(configure(tmp_path / "out", folder)).parts, found, n_bytes // 2)
    assert n_bytes // 8 < found.input_bytes < n_bytes // 3
    assert found.read_bytes < 0.6 * n_bytes
    assert abs(found.records_per_byte * n_bytes / 1500 - 1) < 0.1
    mean_bytes = found.text_bytes / len(found.texts)
    expected = sum(len(row["text"]) for row in ROWS[:1500]) / 1500
    assert abs(mean_bytes / expected - 1) < 0.1


def test_no_more_files_are_opened_than_there_are_windows(surveyed, tmp_path, monkeypatch):
    monkeypatch.setattr("tokmill.run.forecast.windows._MAX_WINDOWS", 50)
    folder = many_files(tmp_path / "many", ROWS[:300])
    assert 20 <= len(surveyed(1 << 20, folder).texts) <= 50


def test_whole_files_have_the_same_chance_whatever_their_size(surveyed, tmp_path, monkeypatch):
    monkeypatch.setattr("tokmill.run.forecast.windows._MAX_WINDOWS", 100)
    (tmp_path / "many").mkdir()
    for i in range(300):
        (tmp_path / "many" / f"{i:03d}.txt").write_text("x" * (1000 if i % 3 == 0 else 10))
    found = surveyed(1 << 20, tmp_path / "many")
    assert found.heads_only
    large = sum(len(text) == 1000 for text in found.texts)
    assert abs(large / len(found.texts) - 1 / 3) < 0.05


@pytest.mark.parametrize("n_copies", [1, 3, 10])
def test_a_random_sample_shows_the_share_of_new_text(surveyed, tmp_path, write_rows, n_copies):
    rows = [{"text": f"{i:05d} " + "word " * 1000} for i in range(400)]
    path = write_rows(tmp_path / "a.jsonl", rows * n_copies)
    n_bytes = path.stat().st_size
    found = surveyed(1 << 20, path, at_random=True)
    assert found.input_bytes < n_bytes
    assert 0.6 < found.new_share(n_bytes) * n_copies < 1.5


def test_windows_at_random_meet_no_record_twice(surveyed, tmp_path, write_rows):
    paths = [
        write_rows(tmp_path / name, [{"text": name + str(i)} for i in range(3000)])
        for name in ("a.jsonl", "b.jsonl", "c.jsonl")
    ]
    found = surveyed(50_000, *paths, at_random=True)
    assert len(set(found.texts)) == len(found.texts) > 500
    assert {text[:1] for text in found.texts} == {"a", "b", "c"}


@pytest.mark.parametrize("texts", [[], ["a"], ["a", "a"], ["404"] * 50 + ["b", "c"]])
def test_few_twins_or_one_text_in_many_copies_say_nothing(texts):
    assert InputSample(texts, input_bytes=1000, window_bytes=1000).new_share(10**9) == 1.0


def test_files_without_ranges_are_read_completely_within_the_limit(surveyed, tmp_path):
    rng = random.Random(3)
    lines = [json.dumps({"text": f"{rng.getrandbits(200):x}"}) + "\n" for _ in ROWS]
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("".join(lines[:10]).encode()))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress("".join(lines[10:-1]).encode()))
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(lines[-1].encode()))
    n_bytes = sum(path.stat().st_size for path in tmp_path.glob("*.gz"))
    found = surveyed(n_bytes, *sorted(tmp_path.glob("*.gz")))
    assert found.is_complete
    assert not found.heads_only
    assert len(found.texts) == len(ROWS)
    assert not surveyed(n_bytes - 1, *sorted(tmp_path.glob("*.gz"))).is_complete


def test_a_small_file_that_decompresses_to_far_more_is_not_read_completely(surveyed, tmp_path):
    again = json.dumps({"text": "again " * 2000}).encode() + b"\n"
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(again * 4000))
    found = surveyed(1 << 20, tmp_path / "a.jsonl.gz")
    assert not found.is_complete
    assert found.heads_only
    assert 0 < len(found.texts) < 3000
