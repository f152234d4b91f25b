"""The first promise for SFT: neither workers, threads, batches nor the engine change a byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokmill.executors.run import run
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
        ("mixed", "reference", 2, 1, 777),
        ("mixed", "gigatoken", 1, 3, 1),
        ("joint", "fastokens", 1, 3, 777),
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


def test_the_trained_tokens_are_counted(expected):
    records = [
        json.loads(data) for name, data in expected["mixed"].items() if name.startswith("parts/")
    ]
    counts = [counts for record in records for counts in record["slices"]]
    assert sum(c.get("trained_tokens", 0) for c in counts) == sum(
        sum(data) for name, data in expected["mixed"].items() if name.endswith(".mask")
    )
