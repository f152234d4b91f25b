"""Power cuts at moments of a command: a sample of them here, all of them by `bench.power_cuts`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def can_trace() -> bool:
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", "/dev/null", "true"], check=False).returncode == 0


needs_strace = pytest.mark.skipif(
    not can_trace(), reason="strace is missing, or may not trace here: apt install strace"
)


def run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@needs_strace
def test_a_power_cut_leaves_what_is_whole_or_goes_on():
    only = ("--only", "mix, linked", "--moments", "3", "--seeds", "2")
    (found,) = json.loads(run("-m", "bench.power_cuts", *only)).values()
    assert found["disks"] > 5


# The model sees what it is there to see

FAULTS = """
import json, sys
from pathlib import Path
from bench.power_cuts import WORKS, Desk, WorkOnDesk, cut_everywhere
from bench.system_calls import Names, Sync, Write

work = WorkOnDesk(Desk(Path(sys.argv[1])), WORKS["export"])
calls = work.recording.operations
never_synced = [one for one in calls if not isinstance(one, Sync)]
named_first = list(calls)
last_write = max(n for n, one in enumerate(calls) if isinstance(one, Write))
its_name = min(n for n, one in enumerate(calls) if isinstance(one, Names) and n > last_write)
named_first.insert(its_name, named_first.pop(last_write))
found = []
for operations in (never_synced, named_first):
    work.recording.operations = operations
    found.append(cut_everywhere(work, seeds=2, runs_again=False).problems)
print(json.dumps(found))
"""


@needs_strace
def test_a_missing_sync_and_a_name_before_its_bytes_are_found(tmp_path):
    for problems in json.loads(run("-c", FAULTS, str(tmp_path))):
        assert any("not all is there" in one or "holes" in one for one in problems)
