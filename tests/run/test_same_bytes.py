"""The first promise: neither workers, threads, batches nor the engine change a byte."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tokmill.engines import spot_check
from tokmill.place import open_place
from tokmill.run.begin import Begun, used_seconds
from tokmill.run.finish import run, run_parts
from tokmill.run.output import records_of_parts

SAMPLES = Path(__file__).parents[2] / "data_samples"
INPUTS = [SAMPLES / n for n in ("records.jsonl", "broken/broken.jsonl", "records.jsonl.gz")]
SETTINGS = {
    "path": str(SAMPLES / "tokenizer"),
    "part_bytes": 13_000,
    "shard_tokens": 2000,
    "val_fraction": 0.2,
    "min_tokens": 30,
    "max_reject_fraction": 1.0,
    "renderer": "encyclopedia",  # the broken records have too many keys to choose one
}
WHOLE = 8 << 20


@pytest.fixture(scope="module")
def make(configure, plan_of):
    """Return a function that writes the dataset to a directory, all but its manifest."""

    def run_all(directory: Path, **settings):
        config = configure(directory, *INPUTS, **SETTINGS | settings)
        plan = plan_of(config)
        place = open_place(str(directory))
        assert place.create("plan.json", plan.chunks())
        spec = dataclasses.replace(plan.spec, plan_stamp=place.stamp("plan.json"))
        plan = dataclasses.replace(plan, spec=spec)
        heard = []
        run_parts(
            Begun(place, plan, config.run.workers or 1, used_seconds()), plan.parts, heard.append
        )
        records, _ = records_of_parts(plan, place, place.entries())
        return list(records.values()), heard

    return run_all


@pytest.fixture(scope="module")
def expected(make, files_of, tmp_path_factory):
    directory = tmp_path_factory.mktemp("expected")
    make(directory, block_bytes=WHOLE)
    return files_of(directory)


def test_the_plan_is_hard_enough(expected):
    names = list(expected)
    assert sum(name.startswith("parts/") for name in names) >= 20
    assert sum(name.startswith("val-") for name in names) > 10
    assert any(name.endswith("-0004.bin") for name in names)
    assert any(name.startswith("rejects/") for name in names)
    assert any(b'"fewer than min_tokens":' in data for data in expected.values())


@pytest.mark.parametrize(
    ("engine", "threads", "block_bytes"),
    [
        ("reference", 2, 1),
        ("gigatoken", 2, WHOLE),
        ("gigatoken", 3, 1),
        ("fastokens", 1, 777),
    ],
)
def test_engine_threads_and_batches_change_no_byte(
    make, files_of, expected, tmp_path, engine, threads, block_bytes
):
    make(tmp_path, engine=engine, threads=threads, block_bytes=block_bytes)
    assert files_of(tmp_path) == expected


@pytest.mark.parametrize(
    ("workers", "engine", "threads", "block_bytes"),
    [(2, "reference", 3, WHOLE), (3, "fastokens", 2, 1)],
)
def test_workers_change_no_byte(
    make, files_of, expected, tmp_path, workers, engine, threads, block_bytes
):
    records, heard = make(
        tmp_path, workers=workers, engine=engine, threads=threads, block_bytes=block_bytes
    )
    assert files_of(tmp_path) == expected
    assert [record.part for record in records] == list(range(len(records)))
    # Nothing that a worker reported is lost on the way.
    total = sum(record.total().records for record in records)
    assert sum(progress.records for progress in heard) == total


def test_neither_workers_threads_nor_batches_change_what_is_checked(make, tmp_path, monkeypatch):
    monkeypatch.setattr(spot_check, "_SHARE_OF_FAST", 0.5)
    ways = [
        {"workers": 1, "threads": 1, "block_bytes": WHOLE},
        {"workers": 2, "threads": 2, "block_bytes": 777},
    ]
    made = [make(tmp_path / str(i), engine="gigatoken", **way)[0] for i, way in enumerate(ways)]
    assert sum(record.total().checks["checked"] for record in made[0]) > 10
    assert made[1] == made[0]


def concatenated(directory: Path, manifest) -> dict[str, list[int]]:
    """Return the tokens of each split: all its shards, in the order of the manifest."""
    return {
        split: np.concatenate(
            [
                np.memmap(directory / f"{shard['name']}.bin", "<u2", "r")
                for shard in manifest["shards"]
                if shard["split"] == split
            ]
        ).tolist()
        for split in ("train", "val")
    }


CONTAINERS = [
    "records.jsonl",
    "records.jsonl.gz",
    "records.jsonl.zst",
    "records_array.json",
    "records.parquet",
    "records.csv",
]


def test_all_containers_of_the_records_give_the_same_tokens(configure, listener, tmp_path):
    found = {}
    for i, name in enumerate(CONTAINERS):
        config = configure(
            tmp_path / name, SAMPLES / name, **SETTINGS | {"shard_tokens": 1000 * (i + 1)}
        )
        manifest = run(config, listener).plain
        assert manifest["totals"]["records"] == 180
        assert manifest["totals"]["drops"]["fewer than min_tokens"] > 0
        found[name] = concatenated(tmp_path / name, manifest)
    first = found["records.jsonl"]
    assert len(first["val"]) > 1000
    assert all(tokens == first for tokens in found.values())
