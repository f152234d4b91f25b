"""What `tokmill doctor` finds on machines with something broken; each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parents[3] / "src"
Examine = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def examine(tmp_path: Path) -> Examine:
    """Run `tokmill doctor --json` where modules are replaced; return exit code and findings."""

    def run(
        *, cwd: Path | None = None, env: dict[str, str] | None = None, **modules: str
    ) -> tuple[int, dict[str, Any]]:
        for name, text in modules.items():
            (tmp_path / "modules" / name).mkdir(parents=True)
            (tmp_path / "modules" / name / "__init__.py").write_text(text)
        (tmp_path / "home").mkdir()
        path = os.pathsep.join([str(tmp_path / "modules"), str(SOURCE)])
        done = subprocess.run(
            [sys.executable, "-m", "tokmill", "doctor", "--json"],
            cwd=cwd or tmp_path,
            env={**os.environ, "HOME": str(tmp_path / "home"), "PYTHONPATH": path, **(env or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert "Traceback" not in done.stderr
        return done.returncode, json.loads(done.stdout)

    return run


def texts(findings: dict[str, Any], *, essential: bool) -> list[str]:
    return [one["text"] for one in findings["problems"] if one["essential"] == essential]


def named(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(row for row in rows if row["name"] == name)


def test_nothing_is_broken_here_and_nothing_is_left_behind(
    examine: Examine, tmp_path: Path
) -> None:
    (tmp_path / "desk").mkdir()
    code, findings = examine(cwd=tmp_path / "desk")
    assert code == 0
    assert findings["works"]
    assert texts(findings, essential=True) == []
    assert {one["broken"] for one in findings["engines"]} == {""}
    assert findings["engines"][0]["name"] == "tokenizers"
    assert list((tmp_path / "desk").iterdir()) == []
    assert list((tmp_path / "home").iterdir()) == []


def test_a_broken_engine_is_named_with_its_reason_and_is_not_essential(examine: Examine) -> None:
    code, findings = examine(gigatoken="raise ImportError('no symbol x')")
    assert code == 0
    broken = named(findings["engines"], "gigatoken")["broken"]
    assert broken == "engine gigatoken is not installed here: no symbol x"
    (advice,) = (one for one in texts(findings, essential=False) if "gigatoken" in one)
    assert advice.endswith("pip install --force-reinstall gigatoken")
    assert named(findings["engines"], "fastokens")["broken"] == ""


def test_an_engine_that_ends_its_process_is_named_too(examine: Examine) -> None:
    code, findings = examine(fastokens="import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    assert code == 0
    assert named(findings["engines"], "fastokens")["broken"].startswith("died with status -4")


def test_an_engine_with_other_ids_than_the_reference_does_not_work(examine: Examine) -> None:
    wrong = """
import numpy as np
class _Backend:
    def encode_batch(self, text, parallel):
        return self
    class layout:
        class content: data = np.zeros(2, np.uint32)
        class offsets: data = np.array([0, 1, 2])
class BPETokenizer: pass
def load_hf_json(text): return _Backend()
import sys; sys.modules['gigatoken.gigatoken_rs'] = sys.modules[__name__]
"""
    _, findings = examine(gigatoken=wrong)
    assert "token" in named(findings["engines"], "gigatoken")["broken"]


WRONG = "raise ImportError('built for another Python')"
ENDS = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"


@pytest.mark.parametrize(
    ("module", "program", "reason"),
    [
        ("numpy", WRONG, "ImportError: built for another Python"),
        ("numpy", ENDS, "its import ended the process with status -4"),
        ("psutil", WRONG, "ImportError: built for another Python"),
        ("tokenizers", ENDS, "its import ended the process with status -4"),
    ],
)
def test_a_needed_package_that_cannot_be_imported_is_essential(
    examine: Examine, module: str, program: str, reason: str
) -> None:
    code, findings = examine(**{module: program})
    assert code == 1
    assert not findings["works"]
    problem = texts(findings, essential=True)[0]
    assert problem.startswith(f"{module} ")
    assert reason in problem
    broken = {one["name"] for one in findings["packages"] if one["broken"]}
    assert module in broken
    assert broken <= {module, "pyarrow"}  # which imports numpy


def test_a_directory_that_cannot_be_written_is_said_and_is_not_essential(examine: Examine) -> None:
    code, findings = examine(cwd=Path("/proc"))
    assert code == 0
    disk = findings["disks"][0]
    assert disk["path"] == "/proc"
    assert disk["problem"]
    said = texts(findings, essential=False)
    assert any(one.startswith("/proc: cannot be written: ") for one in said)


def test_a_package_that_adds_something_broken_is_named(examine: Examine, tmp_path: Path) -> None:
    information = tmp_path / "modules" / "odd-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[tokmill.renderers]\nodd = odd_module:render\n")
    code, findings = examine(odd_module="1 / 0")
    assert code == 0
    assert "renderer odd" in findings["extensions"]
    assert any("odd 1.0 cannot be loaded" in one for one in texts(findings, essential=False))
