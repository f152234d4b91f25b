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
