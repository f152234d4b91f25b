"""Completion in shells: the words that a shell sends, and a real bash."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from tokmill.bill.gpus import find_gpu, known_gpus
from tokmill.bill.models.known import known_models
from tokmill.cli.main import COMMANDS

SOURCE = Path(__file__).parents[2] / "src"
Complete = Callable[..., list[str]]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `tokmill` command, as pip makes it."""
    path = tmp_path_factory.mktemp("bin") / "tokmill"
    path.write_text(f"#!{sys.executable}\nfrom tokmill.__main__ import main\nmain()\n")
    path.chmod(0o755)
    return path


def variables(program: Path, **more: str) -> dict[str, str]:
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(SOURCE), **more}


@pytest.fixture
def complete(tokmill: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Complete:
    """Return what bash gets as completions of the last of some words: `kind,value`."""

    def run(*words: str) -> list[str]:
        monkeypatch.setenv("_TOKMILL_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", "\n".join(["tokmill", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        done = tokmill()
        assert (done.code, done.err) == (0, "")
        return done.out.splitlines()

    return run


def plain(values: Any) -> list[str]:
    return [f"plain,{value}" for value in values]


def test_verbs_are_completed(complete):
    assert complete("") == plain(COMMANDS)
    assert complete("ex") == ["plain,export"]
    assert complete("--no") == ["plain,--no-color"]


def test_options_of_a_verb_are_completed(complete):
    assert complete("export", "out", "--o") == ["plain,--output", "plain,--overwrite"]
    assert "plain,--val-fraction" in complete("pretrain", "--v")
    assert complete("sft", "--preset", "t") == plain(["tokmill", "trl", "torchtune"])


def test_models_and_gpus_are_completed_by_names_that_are_known(complete):
    models = [name for name in known_models() if name.startswith("qwen2.5-")]
    assert models
    assert complete("memory", "--model", "qwen2.5-") == ["file,qwen2.5-", *plain(models)]
    found = complete("memory", "--gpu", "")
    assert [find_gpu(line.removeprefix("plain,")) for line in found] == list(known_gpus())
    assert "plain,h100-sxm" in complete("report", "out", "--gpu", "H1")


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("pretrain", "cor"), "file"),
        (("pretrain", "--output", "cor"), "dir"),
        (("verify", "cor"), "dir"),
        (("report", "out", "--html", "cor"), "file"),
    ],
)
def test_paths_are_completed_by_the_shell(complete, words, kind):
    assert complete(*words) == [f"{kind},cor"]


@pytest.mark.parametrize(("shell", "word"), [("zsh", "1"), ("fish", "exp")])
def test_other_shells_get_names_with_help(tokmill, monkeypatch, shell, word):
    monkeypatch.setenv("_TOKMILL_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", "tokmill exp")
    monkeypatch.setenv("COMP_CWORD", word)
    done = tokmill()
    assert done.code == 0
    assert "export" in done.out
    assert COMMANDS["export"][1] in done.out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_prints_the_script_of_a_shell(tokmill, shell):
    outcome = tokmill("completion", shell)
    assert outcome.code == 0
    assert f"_TOKMILL_COMPLETE={shell}_complete" in outcome.out


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_a_real_bash_completes_a_verb_an_option_and_a_file(program, tmp_path):
    (tmp_path / "corpus-of-letters").mkdir()
    lines = [
        'eval "$(tokmill completion bash)"',
        "tokmill expo\t--help",
        "tokmill export out --to nanog\t-o x",
        "tokmill verify corpus-of\t",
        "exit",
    ]
    (tmp_path / "inputrc").write_text("set enable-bracketed-paste off\nset bell-style none\n")
    shown = typed(lines, tmp_path, variables(program, INPUTRC=str(tmp_path / "inputrc")))
    assert "Usage: tokmill export [OPTIONS] DIRECTORY" in shown
    assert "tokmill export out --to nanogpt -o x" in shown
    assert "$ tokmill verify corpus-of-letters/\n" in shown


def typed(lines: list[str], directory: Path, env: dict[str, str]) -> str:
    """Return what a terminal shows when lines are typed into an interactive bash."""
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=directory,
        env={**env, "PS1": "$ ", "TERM": "dumb"}, start_new_session=True,
    )  # fmt: skip
    late = Timer(300, shell.kill)
    late.start()
    os.close(theirs)
    os.write(ours, "".join(f"{line}\n" for line in lines).encode())
    shown = b""
    try:
        while chunk := os.read(ours, 1 << 16):
            shown += chunk
    except OSError:  # the shell has ended
        pass
    finally:
        late.cancel()
        os.close(ours)
        shell.wait(300)
    return shown.decode(errors="replace").replace("\r", "")
