"""Whatever a name, a message or a record holds, nothing that is printed drives the terminal."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from tokmill.dataset.checksum import manifest_sha256

CLI = Path(__file__).parents[2] / "src/tokmill/cli"
HOSTILE = "\x1b]0;owned\x07\x1b[8m\r\x9b31m\u202e\u2028\u2066\n\x7f\u200f"
DRIVING = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def driving(text: str) -> set[str]:
    """The characters of a text that a terminal would obey."""
    return {c for c in text if unicodedata.category(c) in DRIVING and c != "\n"}


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to work in, of which every name is hostile."""
    place = tmp_path / f"d{HOSTILE}"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def write_records(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"title": f"t{i}", "summary": f"hello {HOSTILE.replace(chr(10), '')}", "sections": []}
        for i in range(4)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "{bad\n")
    return path


def check(outcome: Any, code: int = 0) -> Any:
    assert outcome.code == code, outcome.err
    assert driving(outcome.out + outcome.err) == set()
    assert "owned" in outcome.out + outcome.err, "the name is said, not left out"
    assert not re.search(r"^\\x7f", outcome.out + outcome.err, re.MULTILINE), "no new line"
    return outcome


def test_only_one_module_prints():
    called = re.compile(r"click\.s?echo\(|(?<![\w.])print\(|\.write\(|error\.show\(")
    files = sorted(path for path in CLI.rglob("*.py") if path.name != "screen.py")
    assert [path.name for path in files if called.search(path.read_text(encoding="utf-8"))] == []


def test_a_run_and_its_dataset_print_hostile_names_by_number(tokmill, tokenizer_dir, hostile):
    write_records(hostile / f"in{HOSTILE}" / f"a{HOSTILE}.jsonl")
    (hostile / f"in{HOSTILE}" / f"b{HOSTILE}.exe").write_bytes(b"x")
    shutil.copytree(tokenizer_dir, hostile / f"t{HOSTILE}")
    words = (f"in{HOSTILE}", "-t", f"t{HOSTILE}", "-o", f"out{HOSTILE}", "--engine", "reference")
    out = hostile / f"out{HOSTILE}"
    check(tokmill("plan", *words))
    check(tokmill("pretrain", *words, "--model", "gpt2"), 0)
    check(tokmill("pretrain", *words, "--min-tokens", "9"), 6)
    check(tokmill("inspect", out))
    page = check(tokmill("inspect", out, "--html", f"page{HOSTILE}.html"))
    assert page.out.count("\n") == 1
    check(tokmill("report", out))
    check(tokmill("report", out, "--model", f"m{HOSTILE}"), 2)
    check(tokmill("verify", out))
    (out / f"extra{HOSTILE}.bin").write_bytes(b"x")
    problems = check(tokmill("verify", out), 1)
    assert problems.out.count("\n") == 2
    (out / "train-0000000-0000.bin").unlink()
    check(tokmill("verify", out), 1)
    assert driving(tokmill("report", out).err) == set()


def poisoned(value: Any) -> Any:
    """A value in which every text and every free key is hostile."""
    if isinstance(value, dict):
        return {key: poisoned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [poisoned(item) for item in value]
    return value + HOSTILE if isinstance(value, str) else value


@pytest.mark.parametrize("key", ["sources", "files", "tokenizer", "totals", "config"])
def test_a_forged_manifest_drives_no_terminal(tokmill, chats, tmp_path, key):
    shutil.copytree(chats.directory, tmp_path / "out")
    path = tmp_path / "out" / "manifest.json"
    found = json.loads(path.read_bytes())
    found[key] = poisoned(found[key])
    if key == "totals":
        found[key] |= {name: {HOSTILE: 1} for name in ("rejects", "drops", "counters")}
    found["sha256"] = manifest_sha256(found)
    path.chmod(0o644)
    path.write_text(json.dumps(found))
    for words in (("verify",), ("inspect",), ("report",), ("report", "--model", "gpt2")):
        outcome = tokmill(words[0], tmp_path / "out", *words[1:])
        assert driving(outcome.out + outcome.err) <= {"\t"}  # of a sample's own text
        assert outcome.code in (0, 1, 2, 4)


@pytest.mark.parametrize(
    "words",
    [
        (f"verb{HOSTILE}",),
        ("pretrain", f"--option{HOSTILE}"),
        ("pretrain", "--format", f"jsonl{HOSTILE}"),
        ("pretrain", f"missing{HOSTILE}.jsonl", "-t", f"t{HOSTILE}", "-o", "out"),
        ("pretrain", "-c", f"missing{HOSTILE}.toml"),
        ("verify", f"missing{HOSTILE}"),
    ],
)
def test_an_error_drives_no_terminal(tokmill, hostile, words):
    outcome = check(tokmill(*words), 2)
    assert "owned" in outcome.error


def test_a_traceback_of_ours_drives_no_terminal(tokmill, hostile, monkeypatch):
    def broken(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError(HOSTILE)

    with monkeypatch.context() as patch:
        patch.setattr(os.path, "lexists", broken)
        outcome = tokmill("verify", "out")
    assert outcome.code == 70
    assert driving(outcome.err) == set()
    assert r"RuntimeError: \x1b]0;owned" in outcome.err


def test_an_error_of_the_system_is_no_bug_wherever_it_comes_from(tokmill, hostile, monkeypatch):
    def broken(*arguments: Any, **options: Any) -> Any:
        raise OSError(errno.EIO, "Input/output error", "/data/x")

    with monkeypatch.context() as patch:
        patch.setattr(os.path, "lexists", broken)
        outcome = tokmill("verify", "out")
    assert (outcome.code, outcome.err) == (5, "error: /data/x: input/output error\n")
