"""`tokmill stats` as a user types it: the numbers, Chinese text, JSON, a missing tokenizer."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path

import pytest

import tokmill as package
from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError

RECORDS = [{"text": "猫猫 狗狗"}] * 3 + [{"text": "hello world"}, {"text": ""}, b"{broken"]


def width(line: str) -> int:
    return sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in line)


@pytest.fixture
def written(pretrain, write_rows, tmp_path: Path) -> Path:
    rows = tmp_path / "rows.jsonl"
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in RECORDS]
    rows.write_bytes(b"\n".join(lines) + b"\n")
    assert pretrain(rows, "--max-reject-fraction", "1", "-q").code == 0
    return tmp_path / "out"


def test_it_says_what_the_dataset_holds(tokmill, written: Path) -> None:
    outcome = tokmill("stats", written)
    assert (outcome.code, outcome.err) == (0, "")
    lines = dict(re.findall(r"^(\w[\w ]*?)  +(.*)$", outcome.out, re.MULTILINE))
    assert lines["duplicates"].startswith("2 (50.00%), with ")
    assert re.search(r"^ +most often, 3 times: document 0$", outcome.out, re.MULTILINE)
    assert re.fullmatch(r"mean .*; 50 % up to \d+, .*; longest \d+", lines["lengths"])
    assert re.fullmatch(r"[\d,]+ of [\d,]+ \(\d+\.\d%\)", lines["unused ids"])
    assert re.search(r"^rejects +1 ", outcome.out, re.MULTILINE)
    assert re.search(r"^  rows\.jsonl +4 +100\.0% ", outcome.out, re.MULTILINE)
    assert "<eos>" in outcome.out


def test_tables_with_chinese_text_are_aligned_in_80_columns(
    tokmill, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = tokmill("stats", written).out
    assert max(map(width, out.splitlines())) <= 80
    table = out.split("most frequent ids")[1].splitlines()[1:]
    ends = {width(line) for line in table if line}
    assert len(ends) == 1
    assert any("猫" in line for line in table)


def test_json_is_what_the_library_says(tokmill, pretrained: Dataset) -> None:
    outcome = tokmill("stats", pretrained.directory, "--json")
    assert outcome.code == 0
    assert json.loads(outcome.out) == json.loads(json.dumps(pretrained.stats().as_json()))


def test_ids_have_texts_though_the_tokenizer_has_moved(
    tokmill, written: Path, tokenizer_dir: Path, tmp_path: Path
) -> None:
    manifest = json.loads((written / "manifest.json").read_bytes())
    named = Path(manifest["config"]["tokenizer"]["path"])
    moved = tmp_path / "moved"
    named.rename(moved)
    try:
        outcome = tokmill("stats", written)
        assert outcome.code == 0
        assert "no texts" not in outcome.out
        assert "<eos>" in outcome.out
        assert "<eos>" in tokmill("stats", written, "--tokenizer", moved).out
        wrong = tokmill("stats", written, "--tokenizer", tmp_path / "nothing")
        assert wrong.code == 2
        assert "nothing" in wrong.error
    finally:
        moved.rename(named)


def test_what_is_no_dataset_and_what_is_damaged_is_one_line(
    tokmill, written: Path, tmp_path: Path
) -> None:
    assert "not a tokmill dataset" in tokmill("stats", tmp_path).error
    (shard,) = written.glob("*.bin")
    shard.unlink()
    assert f"{shard.name}: " in tokmill("stats", written).error


LANGUAGES = [("en", 3), ("zh", 2), (None, 1)]


def test_documents_and_tokens_are_counted_by_a_kept_field(
    tokmill, pretrain, write_rows, tmp_path: Path
) -> None:
    rows = [
        {"text": f"hello {i}", "meta": {"language": language}}
        for language, n in LANGUAGES
        for i in range(n)
    ]
    source = write_rows(tmp_path / "in.jsonl", rows)
    assert pretrain(source, "--keep", "meta.language", "-q").code == 0
    outcome = tokmill("stats", tmp_path / "out", "--by", "meta.language", "--json")
    found = json.loads(outcome.out)
    counts = found["by"]["meta.language"]
    assert {row["value"]: row["documents"] for row in counts} == {"en": 3, "zh": 2, "no value": 1}
    assert sum(row["tokens"] for row in counts) == found["totals"]["tokens"]
    for command in ("stats", "report"):
        table = tokmill(command, tmp_path / "out", "--by", "meta.language").out
        assert re.search(r"^  en +3 +50\.0% +\d+ +\d+\.\d%", table, re.MULTILINE), command
    assert package.stats(tmp_path / "out", by="meta.language").by == found["by"]
    page = tmp_path / "report.html"
    assert tokmill("report", tmp_path / "out", "--by", "meta.language", "--html", page).code == 0
    assert re.search(r"By meta\.language.*<th scope=row>en</th>", page.read_text(), re.DOTALL)
    written = page.read_bytes()
    package.open(tmp_path / "out").report(page, by="meta.language")
    assert page.read_bytes() == written


def test_python_names_a_field_that_was_not_kept_in_its_own_way(written) -> None:
    with pytest.raises(UsageError, match=r"^by: this dataset does not keep language: name it "):
        package.stats(written, by="language")


def test_a_field_that_was_not_kept_is_an_error_before_tokens_are_read(tokmill, written) -> None:
    for command in ("stats", "report"):
        outcome = tokmill(command, written, "--by", "language")
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.error == (
            "--by: this dataset does not keep language: name it when the dataset is "
            "made (--keep language)"
        )
