"""Records without text are drops of their own, in every format; a limit is optional."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import manifest

TEXTS = ["hello world", "", "the cat", None, "", "hello there", " \n"]
ROWS = [{"id": i, "text": text} for i, text in enumerate(TEXTS)]
LINES = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)


def write_csv(path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text"])
        writer.writerows((row["id"], row["text"]) for row in ROWS)


FORMATS = {
    "in.jsonl": lambda path: path.write_bytes(LINES),
    "in.jsonl.gz": lambda path: path.write_bytes(gzip.compress(LINES)),
    "in.json": lambda path: path.write_text(json.dumps(ROWS)),
    "in.parquet": lambda path: pq.write_table(pa.Table.from_pylist(ROWS), path),
    "in.csv": write_csv,
}
RENDERERS = [("--renderer", "text"), ("--renderer", "template", "--template", "<{text}>")]


@pytest.mark.parametrize("words", RENDERERS)
@pytest.mark.parametrize("name", FORMATS)
def test_records_without_text_are_drops_and_white_space_is_text(pretrain, tmp_path, name, words):
    FORMATS[name](tmp_path / name)
    outcome = pretrain(tmp_path / name, *words)
    assert outcome.code == 0, outcome.err
    totals = manifest(tmp_path / "out")["totals"]
    assert (totals["documents"], totals["drops"], totals["rejects"]) == (4, {"empty": 3}, {})
    assert "drops    3 empty" in outcome.out


def write_pages(path: Path, n: int, n_empty: int) -> Path:
    texts = ["" if i < n_empty else f"page {i}" for i in range(n)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def test_many_redirect_pages_end_no_run(pretrain, tmp_path):
    assert pretrain(write_pages(tmp_path / "in.jsonl", 2000, 800), "-q").code == 0


@pytest.mark.parametrize("n", [10, 2000])
def test_a_limit_stops_plan_and_run_alike(tokmill, pretrain, tokenizer_dir, tmp_path, n):
    path = write_pages(tmp_path / "in.jsonl", n, n // 2)
    said = f"{n // 2:,} of {n:,} records have no text, more than --max-empty-fraction=0.4 allows"
    words = ("--max-empty-fraction", "0.4")
    planned = tokmill("plan", path, "-t", tokenizer_dir, "--engine", "reference", *words)
    outcome = pretrain(path, *words)
    assert (planned.code, outcome.code) == (3, 3)
    assert said in planned.error
    assert said in outcome.error
    assert pretrain(path, "--max-empty-fraction", "0.5").code == 0


def test_a_run_of_empty_texts_alone_says_so(pretrain, tmp_path):
    outcome = pretrain(write_pages(tmp_path / "in.jsonl", 3, 3), "--renderer", "text")
    assert outcome.code == 3
    assert "made no document of 3 records (3 dropped: empty)" in outcome.error
