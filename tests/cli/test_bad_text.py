"""--on-bad-text replace: U+FFFD in the shards, counted where the other counts stand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokmill
from tests.cli.conftest import manifest

LINES = [
    b'{"text": "hello world"}',
    b'{"text": "a \\ud800 b", "title": "\xff"}',
    b'{"text": "a \xff\xe4\xb8 b"}',
    b'{"text": "the cat"}',
]
TEXTS = ["hello world", "a \ufffd b", "a \ufffd\ufffd b", "the cat"]
COUNTERS = {"characters replaced by U+FFFD": 3, "records with replaced characters": 2}


def write(path: Path) -> Path:
    data = b"".join(line + b"\n" for line in LINES)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["in.jsonl", "in.jsonl.gz"])
@pytest.mark.parametrize("words", [(), ("--renderer", "template", "--template", "{text}")])
def test_a_run_counts_what_it_replaced(name, words, pretrain, tmp_path):
    source = write(tmp_path / name)
    outcome = pretrain(source, "--on-bad-text=replace", *words)
    assert outcome.code == 0, outcome.err
    made = manifest(tmp_path / "out")
    assert made["totals"]["counters"] == COUNTERS
    assert made["totals"]["rejects"] == {}
    assert "3 characters in 2 records: U+FFFD stands for what was no text" in outcome.out
    with tokmill.open(tmp_path / "out") as dataset:
        assert [dataset.text(i).removesuffix("<eos>") for i in range(4)] == TEXTS
    record = json.loads(next((tmp_path / "out").glob("parts/*.json")).read_bytes())
    assert record["slices"][0]["counters"] == COUNTERS


@pytest.mark.parametrize("ending", ["txt", "csv", "parquet", "json"])
def test_each_format_is_replaced_as_a_run_reads_it(ending, pretrain, tmp_path):
    kept = () if ending == "txt" else ("--keep", "text")  # a text has no fields
    source = tmp_path / f"in.{ending}"
    if ending == "parquet":
        table = pa.table({"text": pa.array([b"a", b"b \xff"]).view(pa.string()), "id": ["1", "2"]})
        pq.write_table(table, source)
    else:
        texts = {"txt": b"b \xff", "csv": b"id,text\n1,a\n2,b \xff\n"}
        source.write_bytes(texts.get(ending, b'[{"text": "a"}, {"text": "b \xff", "id": 1}]'))
    outcome = pretrain(source, "--on-bad-text=replace", *kept)
    assert outcome.code == 0, outcome.err
    with tokmill.open(tmp_path / "out") as dataset:
        assert dataset.text(-1).removesuffix("<eos>") == "b \ufffd"
        if kept:
            assert dataset.meta(-1) == {"text": "b \ufffd"}


def test_plan_says_it_too(tokmill, tokenizer_dir, tmp_path):
    words = ("plan", write(tmp_path / "in.jsonl"), "--tokenizer", tokenizer_dir)
    outcome = tokmill(*words, "--on-bad-text=replace")
    assert "3 characters in 2 records: U+FFFD" in outcome.out
    assert "--on-bad-text" not in outcome.out + outcome.err
    assert "U+FFFD stands" not in tokmill(*words).out


def test_a_file_in_another_encoding_is_not_replaced(pretrain, tmp_path):
    line = json.dumps({"text": "猫は哺乳動物です"}, ensure_ascii=False) + "\n"
    for encoding in ("utf-16", "gb18030", "shift-jis"):
        (tmp_path / "in.jsonl").write_bytes((line * 9).encode(encoding))
        outcome = pretrain(tmp_path / "in.jsonl", "--on-bad-text=replace", "--overwrite")
        assert outcome.code != 0
        assert "iconv" in outcome.err


def test_a_source_has_its_own(pretrain, tmp_path):
    for name in ("a", "b"):
        write(tmp_path / f"{name}.jsonl")
    tables = "".join(
        f'[[source]]\nname = "{name}"\npaths = ["{name}.jsonl"]\non_bad_text = "{choice}"\n'
        for name, choice in (("a", "replace"), ("b", "reject"))
    )
    (tmp_path / "c.toml").write_text(tables)
    outcome = pretrain("--config", tmp_path / "c.toml")
    assert outcome.code == 0, outcome.err
    totals = manifest(tmp_path / "out")["totals"]
    assert (totals["documents"], sum(totals["rejects"].values())) == (6, 2)
    assert totals["counters"] == COUNTERS


def test_it_is_a_variable_and_an_argument_too(pretrain, tokenizer_dir, tmp_path, monkeypatch):
    source = write(tmp_path / "in.jsonl")
    made = tokmill.pretrain(
        source, tokenizer=tokenizer_dir, output=tmp_path / "py", on_bad_text="replace"
    )
    assert made.manifest["totals"]["documents"] == 4
    monkeypatch.setenv("TOKMILL_ON_BAD_TEXT", "replace")
    assert pretrain(source).code == 0
    assert manifest(tmp_path / "out")["totals"]["documents"] == 4


def test_the_reject_names_it(pretrain, tmp_path):
    assert pretrain(write(tmp_path / "in.jsonl")).code == 0
    rejects = next((tmp_path / "out" / "rejects").iterdir()).read_text().splitlines()
    assert len(rejects) == 2
    for reject in rejects:
        assert "--on-bad-text=replace" in json.loads(reject)["message"]
