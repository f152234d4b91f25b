"""`tokmill audit` as a user types it: what it prints, its exit codes, and what it refuses."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import SAMPLES
from tests.inspect.audited import Row, chat, with_reply, words, write_tokenizer
from tokmill.inspect.audit_kinds import KINDS


@pytest.fixture
def rows(tmp_path: Path) -> Any:
    """Write rows, and return their file."""

    def write(*rows: Row) -> Path:
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


@pytest.fixture
def named(tmp_path: Path) -> Path:
    """Write the tokenizer of the rows."""
    folder = tmp_path / "named"
    folder.mkdir()
    return write_tokenizer(folder)


def test_a_kind_is_told_with_its_share_and_one_sample(tokmill, rows, named) -> None:
    path = rows(chat(1), chat(2), chat(3), with_reply(4, words(4)))
    outcome = tokmill("audit", path, "-t", named)
    assert outcome.code == 0
    told = outcome.out.split("\n")
    assert told[0] == f"{path}: 4 samples, 51 tokens, 37.3% trained"
    assert (
        "  cut-off        1  25.0%  a trained reply stops at the end of the sample, and no token"
        in (outcome.out)
    )
    assert f"cut-off: {path}: row 4, token 11 of 12" in told
    assert "why: the model learns to stop in the middle, or not at all" in told
    assert "‹<bos>›‹<|im_start|>›0004‹<|im_end|>›‹<|im_start|>›«0004»" in told
    assert "no fault found" not in told


def test_rows_without_a_fault_say_what_was_not_looked_for(tokmill, rows) -> None:
    outcome = tokmill("audit", rows(chat(1), chat(2)))
    assert outcome.out.endswith("no fault found\n")
    assert "not looked for, without a tokenizer: end-untrained, cut-off, " in outcome.out
    assert "note: rows: ids in input_ids; trained where labels are not -100" in outcome.err


@pytest.mark.parametrize(
    ("kinds", "code"),
    [("any", 1), ("cut-off", 1), ("duplicate,cut-off", 1), ("duplicate", 0), ("", 0)],
)
def test_fail_on_a_kind_exits_with_1_where_it_is_found(tokmill, rows, named, kinds, code) -> None:
    path = rows(chat(1), with_reply(2, words(2)))
    outcome = tokmill("audit", path, "-t", named, "--fail-on", kinds)
    assert outcome.code == code
    if code:
        assert outcome.error == f"{path}: found cut-off (1)"
    assert "cut-off" in outcome.out


REFUSED = {
    "audit rows.jsonl --fail-on cutoff": "no such kind of fault 'cutoff': did you mean cut-off?",
    "audit rows.jsonl --fail-on cut-off": "cut-off: was not looked for: needs a tokenizer",
    "audit": "no source: name a dataset, or files or directories of rows",
    "audit nowhere": "nowhere: no such file or directory",
    "audit empty.jsonl": "empty.jsonl: has no rows",
    "audit text.txt": "text.txt: expected rows of ids (Parquet, JSON Lines, or a dataset of "
    "Hugging Face), found text; tokmill import reads other trainers' tokens",
    "audit rows.jsonl --max-tokens many": "max_tokens: expected a number of tokens",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_cannot_be_audited_is_refused_in_one_line(
    tokmill, rows, tmp_path, monkeypatch, line: str
) -> None:
    rows(chat(1))
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "text.txt").write_text("some text\n")
    monkeypatch.chdir(tmp_path)
    outcome = tokmill(*shlex.split(line))
    assert outcome.code == 2
    assert outcome.error.startswith(REFUSED[line])


def test_a_program_reads_the_same_as_json(tokmill, rows, named) -> None:
    path = rows(chat(1), with_reply(2, words(2)))
    outcome = tokmill("audit", path, "-t", named, "--json", "--fail-on", "any")
    assert outcome.code == 1
    found = json.loads(outcome.out)
    assert (found["samples"], found["tokens"]) == (2, 25)
    (finding,) = found["findings"]
    assert (finding["kind"], finding["count"], finding["share"]) == ("cut-off", 1, 0.5)
    assert finding["example"]["text"] == "<bos><|im_start|>0002<|im_end|><|im_start|>0002"
    assert finding["example"]["where"] == f"{path}: row 2"
    assert found["not_checked"]["over-limit"] == "a limit (max_tokens)"


def test_kinds_are_listed_without_a_source(tokmill) -> None:
    assert list(json.loads(tokmill("audit", "--kinds", "--json").out)) == list(KINDS)
    printed = tokmill("audit", "--kinds").out
    assert all(kind in printed for kind in KINDS)


def test_a_dataset_and_its_exports_have_the_faults_of_their_source_alone(tokmill, tmp_path) -> None:
    chats = tmp_path / "chats"
    made = f"sft {SAMPLES}/sft/chats.jsonl -t {SAMPLES}/tokenizer -o {chats} --max-tokens 4096"
    more = "--engine reference --packing 4096 --val-fraction 0.1"
    assert tokmill(*shlex.split(f"{made} {more}")).code == 0
    for trainer in ("", "datasets", "axolotl", "llamafactory", "megatron-bridge"):
        source = tmp_path / trainer if trainer else chats
        if trainer:
            assert tokmill("export", chats, "--to", trainer, "-o", source).code == 0
        found = json.loads(tokmill("audit", source, "--json").out)
        assert [finding["kind"] for finding in found["findings"]] == ["duplicate"], trainer
        assert set(found["not_checked"]) <= {"over-limit", "two-bos", "labels-shifted"}
