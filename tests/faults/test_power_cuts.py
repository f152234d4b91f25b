"""Power cuts at moments of a command: a sample of them here, all of them by `bench.power_cuts`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEEN = (
    "import json, sys\n"
    "from pathlib import Path\n"
    "from bench import power_cuts\n"
    "from bench.system_calls import Names, Sync, Write\n"
    "desk = power_cuts.Desk(Path(sys.argv[1]))\n"
    "work = power_cuts.WorkOnDesk(desk, power_cuts.WORKS['export'])\n"
    "calls = work.recording.operations\n"
    "{change}\n"
    "found = power_cuts.cut_everywhere(work, seeds=2, runs_again=False)\n"
    "print(json.dumps(found.problems))\n"
)


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
    works = ("mix, linked", "export, over another")
    only = (word for name in works for word in ("--only", name))
    found = json.loads(run("-m", "bench.power_cuts", *only, "--moments", "2", "--seeds", "1"))
    assert sorted(found) == sorted(works)
    assert all(one["disks"] > 3 for one in found.values())


# The model sees what it is there to see

NEVER_SYNCED = "work.recording.operations = [one for one in calls if not isinstance(one, Sync)]"
NAMED_FIRST = (
    "names = [n for n, one in enumerate(calls) if isinstance(one, Names)]\n"
    "last = [n for n, one in enumerate(calls) if isinstance(one, Write)][-1]\n"
    "calls.insert(next(n for n in names if n > last), calls.pop(last))"
)


@needs_strace
@pytest.mark.parametrize("change", [NEVER_SYNCED, NAMED_FIRST])
def test_a_missing_sync_and_a_name_before_its_bytes_are_found(tmp_path, change):
    problems = json.loads(run("-c", SEEN.format(change=change), str(tmp_path)))
    assert any("not all is there" in one or "holes" in one for one in problems)
