"""The program that runs the blocks of a page: what runs, what is skipped, what fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("run_page.py")


@pytest.fixture
def results(tmp_path: Path):
    """Run steps in the temporary directory; return what each left."""

    def run(*steps: dict[str, str]) -> list[dict[str, str]]:
        (tmp_path / "steps").write_text(json.dumps(steps))
        command = [sys.executable, PROGRAM, tmp_path / "steps", tmp_path / "results"]
        subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
        return [json.loads(line) for line in (tmp_path / "results").read_text().splitlines()]

    return run


def python(text: str) -> dict[str, str]:
    return {"kind": "python", "text": text}


def shell(text: str) -> dict[str, str]:
    return {"kind": "shell", "text": text}


def test_programs_share_names_and_files(results) -> None:
    file = {"kind": "file", "name": "a/b.txt", "text": "three"}
    first, second = python("text = open('a/b.txt').read()"), python("print(len(text))")
    assert results(file, first, second) == [{}, {"output": ""}, {"output": "5\n"}]


def test_a_page_begins_in_its_directory_without_names_of_the_page_before(results, tmp_path) -> None:
    (tmp_path / "own").mkdir()
    page = {"kind": "page", "text": str(tmp_path / "own")}
    found = results(python("made = 1"), page, python("import os; print(os.getcwd()); print(made)"))
    assert found[2]["failed"].startswith(f"{tmp_path / 'own'}\nTraceback")
    assert "name 'made' is not defined" in found[2]["failed"]


def test_one_command_of_tokmill_runs_in_the_process_of_the_programs(results) -> None:
    (failed,) = results(shell("tokmill verify missing"))
    assert failed["failed"].startswith("exit code 2: error: missing: ")


def test_what_a_shell_prints_on_both_streams_is_its_output(results) -> None:
    assert results(shell("echo a\necho b >&2")) == [{"output": "a\nb\n"}]


def test_a_script_stops_at_its_first_failing_command(results) -> None:
    assert results(shell("false | true\necho never")) == [{"failed": "exit code 1: "}]


def test_a_program_that_raises_fails_with_what_it_printed_and_the_next_one_runs(results) -> None:
    found = results(python("print('so far')\n1 / 0"), python("print('next')"))
    assert found[0]["failed"].startswith("so far\nTraceback")
    assert found[1] == {"output": "next\n"}


def test_a_missing_package_skips_its_block_and_those_that_use_its_names(results) -> None:
    found = results(
        python("import no_such_package\nmade = no_such_package.make()"),
        python("print(made)"),
        python("print('independent')"),
    )
    reason = {"skipped": "no_such_package is not installed"}
    assert found == [reason, reason, {"output": "independent\n"}]


def test_a_missing_module_of_an_installed_package_is_a_failure(results) -> None:
    assert "No module named 'json.nothing'" in results(python("import json.nothing"))[0]["failed"]


def test_a_block_that_needs_a_missing_package_is_skipped(results) -> None:
    found = results(shell("false") | {"needs": "no_such_package"})
    assert found == [{"skipped": "no_such_package is not installed"}]


def test_a_reader_that_is_not_installed_skips_an_export(results) -> None:
    message = "error: --check: the reader of X is not installed: pip install x"
    assert results(shell(f"echo {message!r}; exit 2")) == [{"skipped": message}]
