"""The rows that tokmill and trl are compared on."""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

import pytest

from bench import sft_speed
from bench.sft_speed import CASES, FIRST, HEAD, LATER, TRL, from_baize, row_of, rows_of, write_rows

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


def test_a_row_has_first_and_later_runs_against_the_run_of_trl_beside_them():
    runs = {
        FIRST: [{"seconds": 4, "tokens": 7}, {"seconds": 5, "tokens": 7}],
        LATER: [{"seconds": 2, "tokens": 7}, {"seconds": 1, "tokens": 7}],
        TRL: [{"seconds": 8, "tokens": 7}, {"seconds": 10, "tokens": 7}],
    }
    row = row_of(CASES[1], 20, runs)
    assert row.count("|") == HEAD.splitlines()[0].count("|")
    assert row.split(" | ")[1:] == [
        "20", "4.5", "15.0", "2.25", "2.0 (2.0-2.0)", "7.0 (4.0-10.0)", "8", "equal |"
    ]  # fmt: skip
    runs[LATER][1]["tokens"] = 8
    assert row_of(CASES[1], 20, runs).endswith("| differ |")


def test_only_later_runs_know_what_earlier_ones_compared(alpaca, tmp_path, monkeypatch):
    seen = []

    def run_tokmill(_case, _data, _given, cache, *more):
        seen.append((list(cache.glob("*")) if cache.exists() else [], more))
        cache.mkdir(exist_ok=True)
        (cache / "known").touch()
        if more == ("--engine", "never exact"):
            raise subprocess.CalledProcessError(1, "tokmill")
        return {"seconds": 1.0, "tokens": 3}

    monkeypatch.setattr(sft_speed, "FAST_ENGINES", ("exact", "never exact", "missing"))
    monkeypatch.setattr(sft_speed, "is_installed", lambda name: name != "missing")
    monkeypatch.setattr(sft_speed, "run_tokmill", run_tokmill)
    monkeypatch.setattr(sft_speed, "run_trl", lambda *_: {"seconds": 9.0, "tokens": 3})
    sft_speed.measure(CASES[0], alpaca, argparse.Namespace(rounds=2), tmp_path)
    assert [more for _, more in seen[:2]] == [("--engine", "exact"), ("--engine", "never exact")]
    assert [bool(cached) for cached, _ in seen[2:]] == [False, True, False, True]
