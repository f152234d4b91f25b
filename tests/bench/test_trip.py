"""The trip of records through tokmill is traced: functions and modules, in order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def printed(*options: str) -> list[str]:
    command = [sys.executable, "-m", "bench.trip", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_functions_and_modules_of_each_trip_are_counted() -> None:
    head, _, *rows = printed()
    assert " ".join(head.replace("|", " ").split()) == "trip functions aim modules aim calls"
    found = {}
    for row in rows:
        name, functions, _, modules, _, calls = (cell.strip() for cell in row.split("|")[1:-1])
        found[name] = [int(cell.replace(",", "")) for cell in (functions, modules, calls)]
    assert list(found) == ["block", "another", "chat", "call"]
    for functions, modules, calls in found.values():
        assert 10 <= modules < functions < calls
    assert found["another"][0] < found["block"][0] < found["chat"][0]
    assert found["block"][0] < found["call"][0]
