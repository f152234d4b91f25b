"""The first promise for SFT: neither workers, threads, batches nor the engine change a byte."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tokmill.run.finish import run
from tokmill.settings.sft import SftSettings

SAMPLES = Path(__file__).parents[2] / "data_samples"
CHATS = SAMPLES / "sft"
WHOLE = 8 << 20
RUNS = {
    "mixed": (
        ["chats.jsonl", "sharegpt.jsonl", "mixed.jsonl", "prompt_chat.jsonl"],
        SftSettings(schema="mixed", template="tokenizer", too_long="drop-turns", packing=2000),
        {"max_tokens": 2000, "min_tokens": 12},
    ),
    "joint": (
        ["chats.jsonl", "broken.jsonl"],
        SftSettings(schema="mixed", preset="trl", weights="file", samples="turn"),
        {"max_tokens": 300},
    ),
    "flat": (
        ["alpaca.jsonl", "prompt.jsonl"],
        SftSettings(schema="mixed", template="chatml", too_long="window", window_overlap=5),
        {"max_tokens": 40},
    ),
    "columns": (["alpaca.csv"], SftSettings(template="alpaca"), {}),
}


@pytest.fixture(scope="module")
def make(configure, files_of, silent, tmp_path_factory):
    """Return a function that runs one of `RUNS`, and gives the files that it wrote."""

    def make_dataset(name: str, **settings) -> dict[str, bytes]:
        names, sft, limits = RUNS[name]
        directory = tmp_path_factory.mktemp(name)
        config = configure(
            directory,
            *(CHATS / file for file in names),
            sft=sft,
            **{"path": str(SAMPLES / "tokenizer"), "part_bytes": 13_000, "shard_tokens": 3000}
            | {"val_fraction": 0.2, "max_reject_fraction": 1.0}
            | limits
            | settings,
        )
        run(config, silent)
        return files_of(directory)

    return make_dataset


@pytest.fixture(scope="module")
def expected(make):
    return {name: make(name, block_bytes=WHOLE) for name in RUNS}


def test_the_runs_are_hard_enough(expected):
    names = {name: list(files) for name, files in expected.items()}
    assert sum(name.startswith("parts/") for name in names["mixed"]) >= 8
    assert sum(name.endswith(".mask") for name in names["mixed"]) > 10
    assert any(name.startswith("val-") for name in names["joint"])
    assert any(name.endswith(".weight") for name in names["joint"])
    assert any(name.startswith("rejects/") for name in names["joint"])
    assert "packs-train-rows.bin" in names["mixed"]
    counted = b"".join(data for name, data in expected["flat"].items() if "parts/" in name)
    assert b'"extra":' in counted
    assert b'"cut samples":' in counted


@pytest.mark.parametrize(
    ("name", "engine", "workers", "threads", "block_bytes"),
    [
        ("mixed", "reference", 2, 1, 9000),
        ("mixed", "gigatoken", 1, 3, 2000),
        ("joint", "fastokens", 1, 3, 2000),
        ("flat", "gigatoken", 2, 2, 777),
        ("columns", "reference", 1, 3, 1),
    ],
)
def test_engine_workers_threads_and_batches_change_no_byte(
    make, expected, name, engine, workers, threads, block_bytes
):
    found = make(name, engine=engine, workers=workers, threads=threads, block_bytes=block_bytes)
    assert found == expected[name]


def test_containers_of_the_same_records_give_the_same_samples(make, configure, tmp_path):
    bodies = []
    for name in ("alpaca_array.json", "alpaca.csv", "alpaca.parquet"):
        RUNS[name] = ([name], SftSettings(template="alpaca"), {"part_bytes": 1 << 30})
        files = make(name, shard_tokens=1 << 20)
        bodies.append({n: data for n, data in files.items() if n.endswith((".bin", ".mask"))})
        del RUNS[name]
    assert bodies[0] == bodies[1] == bodies[2]
    assert bodies[0]


USER, REPLY = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}


def records(own_keys: int, n: int = 300) -> list[dict]:
    """Regular stretches and odd ones; `own_keys` of them have a key that no other has."""
    rows: list[dict] = []
    for i in range(n):
        row: dict = {"messages": [USER, REPLY], "id": i}
        row |= {"url": "u"} if i % 3 else {"url": None, "note": ""}
        row |= {"tags": ["t"]} if i % 5 == 0 else {"tags": []}
        if 100 < i < 150:
            row["messages"] = [{**USER, "id": 7}, REPLY]
        if i < own_keys:
            row[f"k{i:03}"] = 1
        rows.append(row)
    return rows


@pytest.fixture
def unread(configure, files_of, silent, tmp_path):
    """Return a function that runs records and returns the unread keys, and the part records."""

    def make(name: str, rows: list[dict], **settings):
        path = tmp_path / "chats.jsonl"
        if not path.exists():  # its time is in the parts' fingerprints
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        config = configure(
            tmp_path / name,
            path,
            sft=SftSettings(template="tokenizer", too_long="window"),
            **{"path": str(SAMPLES / "tokenizer"), "part_bytes": 13_000, "shard_tokens": 700}
            | settings,
        )
        manifest = run(config, silent).plain
        files = files_of(tmp_path / name)
        parts = {name: data for name, data in files.items() if name.startswith("parts/")}
        return manifest["totals"]["unread_keys"], parts

    return make


def test_every_filled_key_that_nothing_reads_is_counted_once_a_record(unread):
    rows = records(0)
    found, _ = unread("out", rows, part_bytes=1 << 20)
    expected = Counter(
        key for row in rows for key in ("id", "url", "tags") if row[key] or key == "id"
    )
    assert found == {**expected, "messages[].id": 49}
    assert "note" not in found


def test_neither_workers_threads_nor_batches_change_a_count(unread):
    rows = records(110, n=130)
    expected = unread("whole", rows, block_bytes=8 << 20)
    for threads, workers, block_bytes in ((3, 1, 200), (1, 2, 777)):
        settings = {"threads": threads, "workers": workers, "block_bytes": block_bytes}
        assert unread(f"{threads}-{workers}", rows, **settings) == expected


def test_a_key_of_each_record_does_not_fill_the_manifest(unread):
    found, _ = unread("out", records(250))
    named = [key for key in found if key.startswith("k")]
    assert (len(named), len(found)) == (97, 101)
    assert found["other keys"] == 250 - 97 + 49  # inside messages is met behind the hundredth


def test_windows_of_a_record_count_it_once(unread):
    found, _ = unread("out", [{"messages": [USER, REPLY] * 9, "url": "u"}] * 4, max_tokens=50)
    assert found == {"url": 4}
