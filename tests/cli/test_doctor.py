"""`tokmill doctor` as a user sees it; where something is broken, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tokmill.api.doctor import EXTRAS, NEEDED

ROOT = Path(__file__).parents[2]
Doctor = Callable[..., tuple[int, dict[str, tuple[str, str]]]]
WRONG = "raise ImportError('built for another Python')"
ENDS = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"


@pytest.fixture
def doctor(tmp_path: Path) -> Doctor:
    """Run `tokmill doctor --json` where modules are replaced; return exit code and findings."""

    def run(
        *arguments: str | Path, cwd: Path = tmp_path, **modules: str
    ) -> tuple[int, dict[str, tuple[str, str]]]:
        for name, text in modules.items():
            (tmp_path / "modules" / name).mkdir(parents=True)
            (tmp_path / "modules" / name / "__init__.py").write_text(text)
        path = os.pathsep.join([str(tmp_path / "modules"), str(ROOT / "src")])
        done = subprocess.run(
            [sys.executable, "-m", "tokmill", "doctor", "--json", *map(str, arguments)],
            cwd=cwd, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
            check=False, timeout=120,
        )  # fmt: skip
        assert "Traceback" not in done.stderr
        found = json.loads(done.stdout)
        assert found["works"] == (done.returncode == 0)
        return done.returncode, {
            one["name"]: (one["state"], one["text"]) for one in found["findings"]
        }

    return run


def test_lines_and_json_say_the_same(tokmill, tmp_path, tokenizer_dir):
    arguments = (tmp_path / "out", "-t", tokenizer_dir)
    shown, plain = tokmill("doctor", *arguments), tokmill("doctor", *arguments, "--json")
    assert (shown.code, plain.code) == (0, 0), shown.err
    states = {one["name"]: one["state"] for one in json.loads(plain.out)["findings"]}
    *lines, empty, last = shown.out.splitlines()
    assert [re.split("  +", line)[0] for line in lines] == list(states)
    assert (empty, last) == ("", "tokmill works here")
    for name in ("tokenizer", "cores", "memory", "engine gigatoken", "engine fastokens"):
        assert states[name] == "ok"
    assert list(tmp_path.iterdir()) == []


def test_a_tokenizer_and_a_directory_that_are_named_and_cannot_be_used_are_broken(
    tokmill, tmp_path
):
    (tmp_path / "tokenizer.json").write_text("{}")
    outcome = tokmill("doctor", tmp_path / "tokenizer.json" / "out", "--tokenizer", tmp_path)
    assert outcome.code == 1
    assert outcome.error == "tokmill cannot work here, see above: tokenizer, disk"
    assert re.search(r"^tokenizer +broken: .*tokenizer\.json", outcome.out, re.MULTILINE)
    assert "no output can be written here" in outcome.out


def test_what_a_run_can_do_without_is_a_note_with_its_reason(doctor, tmp_path):
    """Engines, something of another package, the current directory."""
    information = tmp_path / "modules" / "odd-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[tokmill.renderers]\nodd = odd_module:render\n")
    modules = {"gigatoken": WRONG, "fastokens": ENDS, "odd_module": "1 / 0"}
    code, findings = doctor(cwd=Path("/proc"), **modules)
    assert code == 0
    for name, reason in (
        ("engine gigatoken", "is not used: ImportError: built for another Python"),
        ("engine fastokens", "is not used: its import ended the process with status -4"),
        ("renderer odd", "odd 1.0 cannot be loaded"),
        ("disk", "no output can be written here"),
    ):
        state, text = findings[name]
        assert state == "note"
        assert reason in text


def test_a_needed_package_that_cannot_be_imported_is_broken(doctor):
    code, findings = doctor(numpy=WRONG, tokenizers=ENDS)
    assert code == 1
    assert "ImportError: built for another Python" in findings["numpy"][1]
    assert "its import ended the process with status -4" in findings["tokenizers"][1]
    broken = {name for name, (state, _) in findings.items() if state == "broken"}
    assert {"numpy", "tokenizers"} <= broken <= {"numpy", "tokenizers", "pyarrow"}


def test_packages_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.split("[>;]", line)[0] for line in project["dependencies"]}
    in_python = {"backports.zstd"} if sys.version_info >= (3, 14) else set()
    assert {*NEEDED} == needed - {"fastokens", "gigatoken"} - in_python
    for extra, packages in EXTRAS.items():
        named = [line.split(">")[0] for line in project["optional-dependencies"][extra]]
        assert list(packages) == named
