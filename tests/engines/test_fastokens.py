from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tokmill.engines.engine import thread_variables

pytest.importorskip("fastokens")


THREADS = """
import sys
from pathlib import Path
from fastokens import Tokenizer
Tokenizer.from_file(sys.argv[1]).encode_batch_flat(["many words " * 100] * 1000)
names = [(task / "comm").read_text() for task in Path("/proc/self/task").iterdir()]
print(sum(name.startswith("fastokens") for name in names))
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="on one core it has no threads")
@pytest.mark.parametrize("is_run", [True, False])
def test_it_has_no_threads_of_its_own_in_a_run(tokenizer_dir, is_run):
    variables = thread_variables(2) if is_run else {}
    inherited = {
        name: value for name, value in os.environ.items() if name not in thread_variables(2)
    }
    ended = subprocess.run(
        [sys.executable, "-c", THREADS, tokenizer_dir / "tokenizer.json"],
        env=inherited | variables,
        capture_output=True,
        check=True,
    )
    assert (int(ended.stdout) > 0) is not is_run
