"""Advice works: each message that names a command is met, and what it says is typed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.advice.case import Case, Step
from tests.cli.advice.messages import COMMAND, NOT_FOLLOWED, messages_with_commands
from tests.cli.advice.of_chats import CHATTED
from tests.cli.advice.of_files import FILES
from tests.cli.advice.of_records import RECORDS
from tests.cli.advice.of_rows import ROWS
from tests.cli.advice.of_runs import RUNS
from tests.cli.advice.of_tokenizers import TOKENIZERS

CASES = FILES + RECORDS + RUNS + CHATTED + TOKENIZERS + ROWS
SAMPLES = Path(__file__).parents[2] / "data_samples"
SHELL = re.compile(r"(\S*NEW_FILE\S*)")

STATE = 6
"""The exit code where a directory holds a run of other settings; --overwrite is named then."""

ONLY_NAMED = {"tokmill report", "--dtype", "--shard-tokens", "--part-bytes", "--too-long"}
"""In the summary of each run, and settings that differ from those of a run."""

Type = Callable[[str], Any]


@pytest.fixture
def typed(tokmill, tokenizer_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Type:
    """Run a line of the shell: a command of tokmill in this process, others by bash."""
    monkeypatch.setenv("TOKMILL_ENGINE", "reference")
    monkeypatch.setenv("TOKMILL_THREADS", "1")
    names = {"TOK": str(tokenizer_dir), "CHAT": str(SAMPLES / "tokenizer")}

    def run(line: str) -> Any:
        if not line.startswith("tokmill "):
            variables = {**os.environ, **names}
            return subprocess.run(
                ["bash", "-c", line], check=True, capture_output=True, env=variables
            )
        return tokmill(*(names.get(word, word) for word in shlex.split(line)[1:]))

    return run


def meet(case: Case, typed: Type, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write the files of a case, run its command, and return what it says."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    for name, content in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    for line in case.before:
        typed(line)
    outcome = typed(case.command)
    return f"{outcome.err}\n{outcome.out}"


def named_commands(text: str) -> set[str]:
    """Return the options and programs that a text names."""
    return set(COMMAND.findall(text))


@pytest.mark.parametrize(
    ("case", "step"),
    [
        pytest.param(case, step, id=f"{case.name}: {step.said}")
        for case in CASES
        for step in case.steps
    ],
)
def test_what_a_message_advises_works(case: Case, step: Step, typed, tmp_path, monkeypatch):
    tool = shlex.split(step.typed or step.said)[0]
    if not tool.startswith(("-", "tokmill")) and shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    said = meet(case, typed, tmp_path / "case", monkeypatch)
    assert step.said in said
    command = step.typed or step.said
    if command.startswith("-"):
        command = f"{case.command} {command}"
    elif not command.startswith("tokmill"):
        new = SHELL.search(command)[0]
        typed(command.replace("NEW_FILE", f"new-{next(iter(case.files))}"))
        new = new.replace("NEW_FILE", f"new-{next(iter(case.files))}")
        command = case.command.replace(next(iter(case.files)), new)
    outcome = typed(command)
    if outcome.code == STATE and "--overwrite" in outcome.err:  # the first attempt left its plan
        outcome = typed(f"{command} --overwrite")
    assert outcome.code == 0, outcome.err


def test_each_message_that_names_a_command_is_met(typed, tmp_path, monkeypatch):
    said = [meet(case, typed, tmp_path / str(i), monkeypatch) for i, case in enumerate(CASES)]
    followed = named_commands("\n".join(step.said for case in CASES for step in case.steps))
    not_followed = named_commands("\n".join(said)) - followed - ONLY_NAMED
    assert not not_followed
    met = [line for text in said for line in text.splitlines()]
    missing = [
        f"{message.place}: {message.words}"
        for message in messages_with_commands()
        if not any(map(message.is_in, met))
        and not any(known in message.words for known in NOT_FOLLOWED)
    ]
    assert not missing, "\n".join(missing)
