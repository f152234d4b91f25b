"""`--log-format json`: every line on standard error is an object with a time."""

from __future__ import annotations

import json
import os
import re
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import GOOD, Outcome, write_lines
from tests.docs.pages import read
from tokmill.api import progress as progress_module
from tokmill.cli import screen

JSON = ("--log-format", "json")
LEVELS = {
    "note": "info",
    "progress": "info",
    "result": "info",
    "warning": "warning",
    "unread": "warning",
    "error": "error",
}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def events(done: Outcome, code: int = 0) -> list[dict[str, Any]]:
    """Return the objects on standard error, of which each has the keys that the page names."""
    assert done.code == code, done.err
    found = [json.loads(line) for line in done.err.splitlines()]
    for one in found:
        assert list(one)[:4] == ["time", "level", "event", "message"]
        assert TIME.fullmatch(one["time"])
        age = datetime.now(UTC) - datetime.fromisoformat(one["time"].replace("Z", "+00:00"))
        assert timedelta() <= age < timedelta(minutes=5)
        assert one["level"] == LEVELS[one["event"]]
        own = set(one) - {"time", "level", "event", "message"}
        expected = {"progress": {"progress"}, "result": {"result"}, "error": {"exit_code"}}
        assert own == expected.get(one["event"], set())
    assert [one["time"] for one in found] == sorted(one["time"] for one in found)
    return found


def kinds(found: list[dict[str, Any]]) -> list[str]:
    return [one["event"] for one in found]


def test_a_run_writes_notes_progress_and_its_result(pretrain, good, tmp_path):
    with good.open("ab") as file:
        file.write(b"{bad}\n")
    done = pretrain(good, "--keep", "nothing", *JSON)
    found = events(done)
    assert {"note", "progress", "warning", "result"} == set(kinds(found))
    assert kinds(found)[-1] == "result"
    last = [one for one in found if one["event"] == "progress"][-1]["progress"]
    assert (last["percentage"], last["documents"], last["rejects"]) == (100, 40, 1)
    result = found[-1]["result"]
    assert result["output"] == str(tmp_path / "out")
    assert result["totals"]["documents"] == 40
    assert done.out.startswith("records ")  # the summary stays where it was
    again = events(pretrain(good, "--keep", "nothing", *JSON))
    assert "progress" not in kinds(again)
    assert again[-1]["result"] == result


def test_progress_is_written_once_a_second_at_most(pretrain, good, monkeypatch):
    monkeypatch.setattr(progress_module, "LINE_EVERY_S", 0.0)
    for every_s, least, most in ((1e9, 1, 2), (0.0, 5, 1000)):
        monkeypatch.setattr(screen, "LOG_EVERY_S", every_s)
        found = events(pretrain(good, "--part-bytes", "300", "--overwrite", *JSON))
        assert least <= kinds(found).count("progress") <= most
        assert not any(one["message"].startswith("progress:") for one in found)


@pytest.mark.parametrize("options", [["--json"], []])
def test_standard_output_is_not_changed(pretrain, good, options):
    assert pretrain(good).code == 0
    plain = pretrain(good, *options)
    logged = pretrain(good, *options, *JSON)
    assert logged.out == plain.out
    assert "note" in kinds(events(logged))


def test_quiet_leaves_what_must_be_said(pretrain, good):
    done = pretrain(good, "--quiet", "--keep", "nothing", *JSON)
    assert set(kinds(events(done))) == {"warning"}


def test_every_command_with_work_has_a_result(pretrain, tokmill, good, tokenizer_dir, tmp_path):
    out, array = tmp_path / "out", tmp_path / "array"
    assert pretrain(good).code == 0
    tokenizer, plan = ("-t", tokenizer_dir), ("plan", good, "-t", tokenizer_dir, "-o", array)
    export = tmp_path / "megatron"
    for words in (
        plan,
        (*plan, "--write"),
        ("run-part", array, "--index", "0", "--of", "1"),
        ("finish", array),
        ("pack", out, "--length", "16"),
        ("verify", out),
        ("mix", out, "-o", tmp_path / "mixed", "--plan"),
        ("mix", out, "-o", tmp_path / "mixed"),
        ("export", out, "--to", "megatron", "-o", export),
        ("import", export, "--from", "megatron", *tokenizer, "-o", tmp_path / "i"),
        ("import", export, "--from", "megatron", *tokenizer, "-o", tmp_path / "j", "--write-plan"),
    ):
        results = [one for one in events(tokmill(*words, *JSON)) if one["event"] == "result"]
        assert len(results) == 1, words
        assert results[0]["result"]


@pytest.mark.parametrize("given", ["option", "equals", "variable"])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["pretrain", "--no-such"], 2),
        (["pretrain", "none.jsonl", "-o", "o", "-t", "none"], 4),
        (["pretrain"], 2),
        (["verify", "none"], 2),
        (["finish", "none"], 2),
        (["no-such-verb"], 2),
    ],
)
def test_an_error_is_an_object_with_the_exit_code(
    tokmill, tmp_path, monkeypatch, words, code, given
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    if given == "variable":
        monkeypatch.setenv("TOKMILL_LOG_FORMAT", "json")
    added = {"option": list(JSON), "equals": ["--log-format=json"], "variable": []}[given]
    found = events(tokmill(*words, *added), code)
    assert found[-1]["event"] == "error"
    assert found[-1]["exit_code"] == code
    assert kinds(found).count("error") == 1


@pytest.mark.parametrize("verb", ["inspect", "stats", "report", "status", "config", "no-such"])
def test_before_the_verb_it_holds_for_every_command(tokmill, verb):
    words = ("check", "none") if verb == "config" else ("none",)
    assert events(tokmill(*JSON, verb, *words), 2)[-1]["exit_code"] == 2


def test_input_that_breaks_off_is_named_file_by_file(pretrain, tmp_path):
    for name in ("a.jsonl", "b.jsonl"):
        write_lines(tmp_path / name, GOOD)
        with (tmp_path / name).open("ab") as file:
            file.write(b'{"title": "cut')
    found = events(pretrain(tmp_path / "a.jsonl", tmp_path / "b.jsonl", *JSON), 3)
    assert kinds(found).count("unread") == 2
    assert found[-1]["exit_code"] == 3


def test_a_bug_is_an_error_behind_its_traceback(pretrain, good, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("injected")

    monkeypatch.setattr("tokmill.api.jobs.run_config", fail)
    found = events(pretrain(good, *JSON), 70)
    assert "ZeroDivisionError: injected" in found[-2]["message"]
    assert found[-1]["exit_code"] == 70


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_an_error_too(pretrain, good, monkeypatch, number):
    monkeypatch.setattr(screen, "LOG_EVERY_S", 0.0)
    write = screen.log

    def interrupted(event: str, message: str, **more: Any) -> None:
        write(event, message, **more)
        if event == "progress":
            os.kill(os.getpid(), number)

    monkeypatch.setattr(screen, "log", interrupted)
    found = events(pretrain(good, "--part-bytes", "300", "--workers", "1", *JSON), 130)
    assert found[-1]["message"].startswith("interrupted")
    assert found[-1]["exit_code"] == 130


def test_the_second_interrupt_is_an_object_too(tokmill, monkeypatch):
    tokmill("--version", *JSON)
    written = json.loads(screen.Interrupt.shown("interrupted"))
    assert (written["event"], written["exit_code"]) == ("error", 130)
    tokmill("--version")
    assert screen.Interrupt.shown("interrupted") == "error: interrupted"


def test_nothing_that_is_written_drives_a_terminal(pretrain, tmp_path, monkeypatch):
    hostile = "\x1b[8m\r\x9b31m\u202e\u2028\x7f\u200f"
    place = tmp_path / f"d{hostile}"
    place.mkdir()
    source = write_lines(place / "a.jsonl", [{"text": f"a {hostile}"}])
    done = pretrain(source, "-o", place / "out", *JSON)
    assert done.err.replace("\n", "").isprintable()
    assert events(done)[-1]["result"]["output"] == str(place / "out")


def test_the_page_names_every_key_and_every_event():
    page = read("docs/containers.md").split("| key | content |")[1].split("\n\n")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE))
    assert list(rows) == [
        "time", "level", "event", "message", "progress", "result", "exit_code",
    ]  # fmt: skip
    assert set(re.findall(r"`(\w+)`", rows["event"])) == set(LEVELS)
    assert set(re.findall(r"`(\w+)`", rows["level"])) == set(LEVELS.values())


def test_a_wrong_format_is_refused(tokmill, monkeypatch):
    assert "'xml' is not one of" in tokmill("verify", "o", "--log-format", "xml").error
    monkeypatch.setenv("TOKMILL_LOG_FORMAT", "xml")
    assert "'xml' is not one of" in tokmill("verify", "o").error


def test_the_option_wins_over_the_variable(tokmill, monkeypatch, tmp_path):
    monkeypatch.setenv("TOKMILL_LOG_FORMAT", "json")
    assert tokmill("verify", Path("none"), "--log-format", "text").error
