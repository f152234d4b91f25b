"""Files of strangers with right sums are one line; `python -m bench.hostile` tries thousands."""

from __future__ import annotations

import json
import subprocess
import sys

N_CASES = 24


def test_hostile_manifests_plans_records_and_indexes_are_one_line():
    done = subprocess.run(
        [sys.executable, "-m", "bench.hostile", "--count", str(N_CASES), "--commands", "3"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"tried": N_CASES, "failed": []}
