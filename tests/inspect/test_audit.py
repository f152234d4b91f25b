"""Planted faults are found in rows of every format and in datasets, and sound ones have none."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokmill
from tests.inspect.audited import (
    EOS,
    FAULTS,
    N_IDS,
    Fault,
    Row,
    attended,
    chat,
    document,
    masked,
    packed,
    write_tokenizer,
)
from tokmill.inspect.audit_kinds import KINDS
from tokmill.inspect.audit_result import Audit
from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer.tokenizer import load_tokenizer

FORMATS = ("jsonl", "parquet", "datasets")


@pytest.fixture(scope="module")
def tokenizer_of_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the tokenizer of the rows."""
    return write_tokenizer(tmp_path_factory.mktemp("audited"))


@pytest.fixture(scope="module")
def tokenizer_without_pad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the same tokenizer, whose files name no pad and no bos."""
    folder = write_tokenizer(tmp_path_factory.mktemp("without-pad"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>"}))
    return folder


@pytest.fixture
def look(
    tmp_path: Path, tokenizer_of_rows: Path, tokenizer_without_pad: Path
) -> Callable[..., Audit]:
    """Write rows in a format, and audit them."""

    def look(rows: Sequence[Row], kind: str = "jsonl", **options: Any) -> Audit:
        tokenizer = options.pop("tokenizer", tokenizer_of_rows)
        if tokenizer == "without pad":
            tokenizer = tokenizer_without_pad
        return tokmill.audit(write(tmp_path, rows, kind), tokenizer=tokenizer, **options)

    return look


def write(folder: Path, rows: Sequence[Row], kind: str) -> Path:
    """Write rows as JSON Lines, as Parquet, or as `save_to_disk` of datasets does."""
    path = folder / f"rows.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path
    names = dict.fromkeys(name for row in rows for name in row)
    table = pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows])
    if kind == "parquet":
        pq.write_table(table, path)
        return path
    path.mkdir()
    with pa.ipc.new_stream(str(path / "data-00000-of-00001.arrow"), table.schema) as stream:
        stream.write_table(table)
    listed = [{"filename": "data-00000-of-00001.arrow"}]
    (path / "state.json").write_text(json.dumps({"_data_files": listed}))
    (path / "dataset_info.json").write_text("{}")
    return path


CASES = [
    pytest.param(fault, kind, id=f"{name}: {kind}")
    for name, fault in FAULTS.items()
    for kind in fault.formats or FORMATS
]


@pytest.mark.parametrize(("fault", "kind"), CASES)
def test_a_planted_fault_is_found_in_rows_with_its_count(fault: Fault, kind: str, look) -> None:
    rows = fault.rows()
    found = look(rows, kind, **fault.options)
    assert found.counts == {fault.kind: 2}
    assert found.samples == sum(len(row.get("seq_lengths", "-")) for row in rows) or fault.is_row
    (finding,) = found.findings
    assert finding.share == 2 / found.samples
    assert finding.example is not None
    assert f": row {len(rows) - 1}" in finding.example.where


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if not fault.is_row])
def test_a_planted_fault_is_found_in_a_dataset_with_its_count(
    name: str, make_sft, make_dataset, tokenizer_of_rows: Path, tokenizer_without_pad: Path
) -> None:
    fault, options = FAULTS[name], dict(FAULTS[name].options)
    folder = tokenizer_of_rows
    if options.pop("tokenizer", ""):
        folder = tokenizer_without_pad
    directory = as_dataset(fault.rows(), folder, make_sft, make_dataset)
    found = tokmill.audit(directory, tokenizer=folder, **options)
    assert found.counts == {fault.kind: 2}
    assert found.samples == 5
    assert found.findings[0].share == 2 / 5
    example = found.findings[0].example
    assert example is not None
    assert example.where.endswith(" 3")


def as_dataset(rows: Sequence[Row], tokenizer: Path, make_sft: Any, make_dataset: Any) -> Path:
    """Write rows as a dataset, as if they had been imported."""
    loaded = load_tokenizer(TokenizerSettings(str(tokenizer)))
    described = {
        "name": "t", "identity": loaded.identity, "vocab_size": N_IDS,
        "eos": {"id": EOS, "token": "<eos>"}, "bos": None,
    }  # fmt: skip
    name = "train-0000000-0000"
    if "labels" not in rows[0]:
        return make_dataset({name: [row["input_ids"] for row in rows]}, tokenizer=described)[0]
    samples = [(row["input_ids"], [int(label != -100) for label in row["labels"]]) for row in rows]
    mask = {
        "preset": "imported", "boundary": "imported", "alignment": "target", "trained": [],
        "turns": "", "template": "imported", "template_sha256": "0" * 64,
        "ends": {"rule": "imported", "last_ids": []}, "cut": 0,
    }  # fmt: skip
    return make_sft({name: samples}, tokenizer=described, mask=mask)[0]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("make", [chat, document, packed, attended, masked])
def test_sound_rows_have_no_fault(make: Callable[[int], Row], kind: str, look) -> None:
    found = look([make(number) for number in range(5)], kind)
    assert found.counts == {}


def test_every_kind_is_planted() -> None:
    assert {fault.kind for fault in FAULTS.values()} | {"val-in-train"} == set(KINDS)
    assert len(FAULTS) > 20
