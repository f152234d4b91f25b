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
    PAD,
    Fault,
    Row,
    attended,
    chat,
    document,
    masked,
    of_text,
    packed,
    words,
    write_tokenizer,
)
from tokmill.errors import UsageError
from tokmill.inspect import audit_rows
from tokmill.inspect.audit_kinds import KINDS
from tokmill.inspect.audit_result import Audit
from tokmill.settings.schema import TokenizerSettings
from tokmill.sources import blocks
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


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_rows_in_a_store_are_audited(
    store: Any, kind: str, tmp_path: Path, tokenizer_of_rows: Path
) -> None:
    path = write(tmp_path, FAULTS["an end cut off"].rows(), kind)
    store.write(path.name, path.read_bytes())
    for source in (store.url, f"{store.url}/{path.name}"):
        found = tokmill.audit(source, tokenizer=tokenizer_of_rows)
        assert (found.counts, found.source) == ({"cut-off": 2}, source)


def test_rows_in_memory_are_audited(tokenizer_of_rows: Path) -> None:
    rows = FAULTS["two bos"].rows()
    for given in (rows, iter(rows), pa.Table.from_pylist(rows)):
        assert tokmill.audit(given, tokenizer=tokenizer_of_rows).counts == {"two-bos": 2}


def test_a_sample_of_val_that_is_in_train_is_counted(look, tmp_path: Path) -> None:
    (tmp_path / "val").mkdir()
    val = write(tmp_path / "val", [chat(1), chat(7)], "jsonl")
    found = look([chat(1), chat(2)], val=val)
    assert found.counts == {"duplicate": 1, "val-in-train": 1}


@pytest.mark.parametrize(
    "rows",
    [
        [{"input_ids": [1, 2**40, 5], "labels": [-100, 2**40, 5]}],
        [{"input_ids": [PAD] * 3, "labels": [-100] * 3}, chat(1)],
        [{"input_ids": [5], "labels": [5]}, chat(3)],
        [{"input_ids": [], "labels": []}],
        [chat(1), {"foo": 1}, document(3), masked(4)],
        [{"input_ids": [-1, -2], "labels": [-1, -2]}],
        [{"prompt_ids": [], "completion_ids": [5]}, {"prompt_ids": [5], "completion_ids": []}],
        [{"input_ids": [1, 2], "labels": [-100, 2], "attention_mask": [False, True]}],
    ],
)
def test_strange_rows_are_audited_with_and_without_a_tokenizer(rows: list[Row], look) -> None:
    for kind in FORMATS:
        counted = look(rows, kind)
        assert counted.samples == len(rows)
        assert tokmill.audit(counted.source).samples == len(rows)


@pytest.mark.parametrize("source", [5, None, {"input_ids": [1]}, b"rows.jsonl"])
def test_what_is_no_source_is_refused(source: Any) -> None:
    with pytest.raises(UsageError, match=r"^source: expected a (dataset|path)"):
        tokmill.audit(source)


def test_a_dataset_says_itself_what_its_columns_are(make_sft) -> None:
    directory, _ = make_sft()
    with pytest.raises(UsageError, match="a dataset says itself what its columns are"):
        tokmill.audit(directory, labels="labels")


def test_blocks_do_not_change_what_is_found(look, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row for fault in FAULTS.values() if not fault.options for row in fault.rows()]
    rows = [row for row in rows if row.keys() == {"input_ids", "labels"}]
    whole = look(rows).counts
    monkeypatch.setattr(audit_rows, "BLOCK_BYTES", 300)
    monkeypatch.setattr(blocks, "_LEAST_BYTES", 300)
    assert look(rows).counts == whole
    assert len(whole) > 12


def test_documents_that_were_cut_into_rows_need_no_eos(look) -> None:
    pieces = [{"input_ids": words(n), "labels": [-100, *words(n)[1:]]} for n in range(3)]
    last = {"input_ids": [*words(9)[:2], EOS], "labels": [-100, words(9)[1], EOS]}
    assert look([*pieces, last]).counts == {}
    longer = {"input_ids": [*words(8), EOS], "labels": [-100, *words(8)[1:], EOS]}
    assert look([*pieces, longer]).counts == {"no-eos": 3}


def test_what_most_prompts_end_with_is_no_header(look) -> None:
    ends = [".", ".", ".", ".", ".", '."', ".)"]
    rows = []
    for number, end in enumerate(ends):
        prompt, reply = [*words(number), *of_text(end)], [*words(number), EOS]
        rows.append({"input_ids": prompt + reply, "labels": [-100] * len(prompt) + reply})
    assert look(rows).counts == {}
    assert look(rows, "parquet", tokenizer=None).counts == {}


def test_every_kind_is_planted() -> None:
    assert {fault.kind for fault in FAULTS.values()} | {"val-in-train"} == set(KINDS)
    assert len(FAULTS) > 20
