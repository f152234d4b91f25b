"""Input that breaks off: the rest is done, every break is told, and no setting changes either."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tokmill.errors import RecordError, UnreadInputError
from tokmill.run.finish import run
from tokmill.settings.sft import SftSettings
from tokmill.sources.streams import zstd

ROWS = [{"text": f"hello {i} " * (i % 5 + 1)} for i in range(200)]


def lines_of(rows) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@pytest.fixture
def broken(tmp_path) -> list[Path]:
    """One file for each way to break off, and a good one between them."""
    text = lines_of(ROWS)
    checked = {zstd.CompressionParameter.checksum_flag: 1}
    frames = [zstd.compress(text[i : i + 900], options=checked) for i in range(0, len(text), 900)]
    frames[4] = frames[4][:-1] + bytes([frames[4][-1] ^ 1])
    files = {
        "a_cut.jsonl.gz": gzip.compress(text)[:-300],
        "b_sum.jsonl.gz": gzip.compress(text)[:-8] + bytes(8),
        "c_frames.jsonl.zst": b"".join(frames),
        "d_good.jsonl": text,
        "e_quote.csv": b'text\n"hello"\n"hel' + text[:3000].replace(b'"', b""),
        "f_array.json": b"[" + text.replace(b"\n", b",")[:900] + b'{"text": [ }, {"text": "a"}]',
        "g_behind.json": b'[{"text": "hello"}] [{"text": "hello"}]',
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    return [tmp_path / name for name in files]


def told(configure, directory, listener, paths, **settings) -> tuple[str, tuple[str, ...]]:
    """Run to the error, and give what it says."""
    settings = {"part_bytes": 700, "shard_tokens": 150} | settings
    with pytest.raises(UnreadInputError) as caught:
        run(configure(directory, *paths, **settings), listener)
    assert not (directory / "manifest.json").exists()
    return str(caught.value), caught.value.files


def test_every_break_is_reported_once_for_any_settings(
    broken, configure, listener, files_of, tmp_path
):
    expected = told(configure, tmp_path / "out", listener, broken)
    written = files_of(tmp_path / "out")
    message, files = expected
    assert message.startswith("6 of 7 input files break off, not read: ")
    named = [line.split(": ")[0] for line in files]
    assert sorted(set(named)) == [path.as_posix() for path in broken if "good" not in path.name]
    settings = ({"block_bytes": 1}, {"block_bytes": 333, "threads": 3}, {"workers": 2})
    for i, change in enumerate(settings):
        assert told(configure, tmp_path / f"{i}", listener, broken, **change) == expected
        assert files_of(tmp_path / f"{i}") == written


def test_a_run_that_accepts_unread_input_continues_and_counts_it(
    broken, configure, listener, silent, files_of, tmp_path
):
    told(configure, tmp_path / "out", listener, broken)
    written = files_of(tmp_path / "out")
    settings = {"part_bytes": 700, "shard_tokens": 150, "on_unread": "skip"}
    manifest = run(configure(tmp_path / "out", *broken, **settings), listener).plain
    assert listener.n_done[-1] == len(listener.plans[-1].parts)
    assert files_of(tmp_path / "out") == written
    alone = run(configure(tmp_path / "alone", *broken, **settings), silent).plain
    assert files_of(tmp_path / "alone") == written
    assert alone["sources"] == manifest["sources"]
    assert alone["totals"] == manifest["totals"]
    entries = {
        Path(source["path"]).name: source["unread"]
        for source in manifest["sources"]
        if "unread" in source
    }
    assert list(entries) == [path.name for path in broken if "good" not in path.name]
    total = manifest["totals"]["unread"]
    assert total["files"] == len(entries)
    for name in ("text_bytes", "stored_bytes"):
        assert total[name] == sum(e[name] for found in entries.values() for e in found)
    assert [e["reason"] for found in entries.values() for e in found][-3:] == [
        "open quote", "lost array", "lost array",
    ]  # fmt: skip
    for name in ("e_quote.csv", "f_array.json", "g_behind.json"):
        (entry,) = entries[name]
        assert entry["text_bytes"] == (tmp_path / name).stat().st_size - entry["byte_offset"]
        assert (entry["stored_byte"], entry["stored_bytes"]) == (-1, 0)


def test_chats_that_break_off_are_reported_too(configure, listener, tmp_path):
    samples = Path(__file__).parents[2] / "data_samples"
    data = gzip.compress((samples / "sft/chats.jsonl").read_bytes())
    path = tmp_path / "in.jsonl.gz"
    path.write_bytes(data[:-500])
    settings = {"path": str(samples / "tokenizer"), "sft": SftSettings(template="tokenizer")}
    message, _ = told(configure, tmp_path / "out", listener, [path], **settings)
    assert message.startswith(f"input breaks off: {path.as_posix()}: byte {len(data) - 500:,}: ")
    manifest = run(
        configure(
            tmp_path / "out", path, part_bytes=700, shard_tokens=150, on_unread="skip", **settings
        ),
        listener,
    ).plain
    assert manifest["totals"]["unread"]["files"] == 1


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_a_compressed_file_of_no_bytes_was_cut_off(ending, configure, tmp_path, silent):
    (tmp_path / f"a.jsonl.{ending}").write_bytes(b"")
    (tmp_path / "b.jsonl").write_bytes(lines_of(ROWS))
    config = configure(tmp_path / "out", tmp_path / f"a.jsonl.{ending}", tmp_path / "b.jsonl")
    with pytest.raises(UnreadInputError, match=rf"a\.jsonl\.{ending}: byte 0: {ending} data ends"):
        run(config, silent)


def test_a_break_is_reported_before_the_rejects_that_it_made(configure, tmp_path, silent):
    (tmp_path / "a.jsonl").write_bytes(lines_of(ROWS) + b"{bad\n" * 50)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines_of(ROWS))[:-300])
    config = configure(tmp_path / "out", tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz")
    with pytest.raises(UnreadInputError, match=r"input breaks off: .*b\.jsonl\.gz"):
        run(config, silent)


GOOD = b'{"text": "one two"}\n' * 20
CUT = {
    "string": ("jsonl", GOOD + b'{"text": "half a sen', 21),
    "bracket": ("jsonl", GOOD + b'{"text": "a", "meta": {"id": 1}', 21),
    "literal": ("jsonl", GOOD + b'{"text": "a", "is_new": tru', 21),
    "character": ("jsonl", GOOD + '{"text": "中'.encode()[:-1], 21),
    "compressed later": ("jsonl.gz", gzip.compress(GOOD + b'{"text": "half'), 21),
    "frames": ("jsonl.zst", zstd.compress(GOOD) + zstd.compress(b'{"text": "half'), 21),
    "object": ("json", b'{\n"title": "a",\n"summary": "half', 1),
    "columns": ("csv", b"id,text,url\n" + b"1,one two,u\n" * 20 + b"2,half a", 21),
    "tabs": ("tsv", b"id\ttext\turl\n" + b"1\tone two\tu\n" * 20 + b"2\tha", 21),
    "quote": ("csv", b"id,text\n" + b'1,"one two"\n' * 20 + b'2,"half', 21),
}
WHOLE = {
    "no newline": ("jsonl", GOOD + b'{"text": "one two"}', 0),
    "bad bytes": ("jsonl", GOOD + b'{"text": "\xff"}', 1),
    "no JSON": ("jsonl", GOOD + b"{'text': 'one two'}", 1),
    "not an object": ("jsonl", GOOD + b'"one two"', 1),
    "a newline behind it": ("jsonl", GOOD + b'{"text": "half\n', 1),
    "last cell": ("csv", b"id,text\n" + b"1,one two\n" * 20 + b"2,one two", 0),
    "too many cells": ("csv", b"id,text\n" + b"1,one two\n" * 20 + b"2,one,two", 1),
}


@pytest.mark.parametrize("part_bytes", [100, 1 << 20])
@pytest.mark.parametrize("name", CUT)
def test_a_last_record_that_was_cut_off_is_unread_input(
    name, part_bytes, configure, listener, tmp_path
):
    ending, data, line = CUT[name]
    path = tmp_path / f"in.{ending}"
    path.write_bytes(data)
    message, _ = told(configure, tmp_path / "out", listener, [path], part_bytes=part_bytes)
    assert message.startswith(f"input breaks off: {path.as_posix()}: record {line}, byte ")


@pytest.mark.parametrize("name", WHOLE)
def test_a_last_record_without_a_newline_is_one_like_others(name, configure, listener, tmp_path):
    ending, data, n_rejects = WHOLE[name]
    path = tmp_path / f"in.{ending}"
    path.write_bytes(data)
    manifest = run(configure(tmp_path / "out", path), listener).plain
    assert (manifest["totals"]["documents"], len(manifest["totals"]["rejects"])) == (
        21 - n_rejects, n_rejects,
    )  # fmt: skip


def test_where_most_records_are_rejected_a_last_one_that_is_cut_off_is_no_news(
    configure, silent, tmp_path
):
    path = tmp_path / "in.csv"
    path.write_bytes(b"id,text\n" + b"1;one two\n" * 20 + b"1;one two")
    with pytest.raises(RecordError, match=r"20 malformed CSV\), more than --max-reject-fraction"):
        run(configure(tmp_path / "out", path), silent)
