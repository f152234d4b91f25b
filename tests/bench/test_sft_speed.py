"""The rows that tokmill and trl are compared on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.sft_speed import CASES, from_baize, rows_of, write_rows

ALPACA = [{"instruction": f"say {i}", "input": "", "output": f"it is {i}"} for i in range(40)]
BAIZE = {
    "topic": "t",
    "input": "The conversation.\n[|Human|] Hi!\n[|AI|] Hello.\n[|Human|] Bye\n[|AI|] Good [day]\n"
    "[|Human|] ",
}


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def alpaca(tmp_path: Path) -> Path:
    path = tmp_path / "alpaca.json"
    path.write_text(json.dumps(ALPACA + ALPACA))
    return path


def test_no_row_comes_twice(alpaca: Path, tmp_path: Path):
    files = write_rows([alpaca], tmp_path, 1 << 20)
    assert set(files) == {"pairs", "single"}
    assert lines(files["pairs"]) == [
        {"prompt": row["instruction"], "completion": row["output"]} for row in ALPACA
    ]
    assert len(lines(files["single"])) == len(ALPACA)


def test_a_kind_ends_with_the_row_that_passes_the_size(alpaca: Path, tmp_path: Path):
    files = write_rows([alpaca], tmp_path, 500)
    assert [500 <= path.stat().st_size < 650 for path in files.values()] == [True, True]


def test_one_text_with_marks_of_speakers_becomes_messages():
    assert from_baize(BAIZE)["messages"] == [
        {"role": "user", "content": "Hi!"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Bye"},
        {"role": "assistant", "content": "Good [day]"},
    ]
    assert from_baize(ALPACA[0]) is ALPACA[0]


def test_messages_with_several_replies_and_with_tools_are_kinds_of_their_own(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    messages = from_baize(BAIZE)["messages"]
    rows = [{"messages": messages}, {"messages": messages[:2]}]
    rows.append({"messages": messages[:2], "tools": [{"name": "f"}]})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    kinds = [kind for kind, _ in rows_of(path)]
    assert kinds == ["multi", "pairs", "single", "tools"]
    assert set(kinds) >= {case.rows for case in CASES}
