"""The samples for SFT: valid or broken as they say, and derived by their program."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from data_samples import make_sft_samples as program
from tokmill.run.finish import run
from tokmill.settings.sft import SftSettings

SAMPLES = Path(__file__).parents[1] / "data_samples"
SCHEMAS = {
    "chats": "messages",
    "sharegpt": "conversations",
    "alpaca": "alpaca",
    "prompt": "prompt",
    "prompt_chat": "prompt",
    "mixed": "mixed",
}


@pytest.fixture
def make(tmp_path, silent, configure):
    """Give a function that writes the dataset of some sample files and gives its manifest."""

    def make_dataset(*names: str, schema: str):
        paths = (SAMPLES / "sft" / name for name in names)
        settings = {"path": str(SAMPLES / "tokenizer"), "sft": SftSettings(schema=schema)}
        return run(configure(tmp_path, *paths, max_reject_fraction=1.0, **settings), silent).plain

    return make_dataset


def records_of(name: str) -> list[dict]:
    lines = (SAMPLES / "sft" / f"{name}.jsonl").read_bytes().rstrip(b"\n").split(b"\n")
    return [json.loads(line) for line in lines]


def test_every_record_of_the_valid_files_becomes_a_sample(make):
    manifest = make(*(f"{name}.jsonl" for name in SCHEMAS), schema="mixed")

    assert manifest["totals"]["documents"] == sum(len(records_of(name)) for name in SCHEMAS)
    assert manifest["totals"]["drops"] == {}
    assert manifest["totals"]["rejects"] == {}


def test_what_becomes_of_every_broken_case_is_what_the_program_says(make, tmp_path):
    totals = make("broken.jsonl", schema="mixed")["totals"]

    found = {}
    for path in (tmp_path / "rejects").iterdir():
        rejects = map(json.loads, path.read_bytes().splitlines())
        found |= {reject["line"]: reject["reason"] for reject in rejects}
    outcomes = [outcome for _, outcome, _ in program.BROKEN_CASES]
    kept = (program.SAMPLE, program.UNTRAINED, program.NOTHING)
    assert found == {line: o for line, o in enumerate(outcomes, 1) if o not in kept}
    assert totals["documents"] == outcomes.count(program.SAMPLE)
    assert totals["drops"] == {"no trained token": outcomes.count(program.UNTRAINED)}


def test_the_derived_files_are_those_of_the_program():
    records = [record for record in records_of("alpaca") if "history" not in record]
    rows = [{name: r.get(name) for name in program.ALPACA_COLUMNS} for r in records]
    folder = SAMPLES / "sft"

    broken = b"".join(line for _, _, line in program.BROKEN_CASES)
    assert (folder / "broken.jsonl").read_bytes() == broken
    assert (folder / "alpaca_array.json").read_bytes() == program.to_json_array(records)
    assert (folder / "alpaca.csv").read_bytes() == program.to_csv(records)
    # The Parquet file's bytes depend on the library's version.
    assert pq.read_table(folder / "alpaca.parquet").to_pylist() == rows
    assert pq.read_table(io.BytesIO(program.to_parquet(records))).to_pylist() == rows
    with (folder / "alpaca.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.DictReader(file)) == [
            {name: value or "" for name, value in row.items()} for row in rows
        ]
