from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from tokmill.engines.engine import thread_variables
from tokmill.engines.reference import load_reference
from tokmill.engines.texts import hostile_texts

pytest.importorskip("fastokens")

from tokmill.engines.fastokens import Fastokens

THREADS = """
import sys
from pathlib import Path
from fastokens import Tokenizer
Tokenizer.from_file(sys.argv[1]).encode_batch_flat(["many words " * 100] * 1000)
names = [(task / "comm").read_text() for task in Path("/proc/self/task").iterdir()]
print(sum(name.startswith("fastokens") for name in names))
"""


@pytest.mark.parametrize("parse", [False, True])
def test_ids_and_offsets_are_those_of_the_reference(tokenizer, parse):
    text = pa.array(hostile_texts(["<eos>", "<tool>"]), pa.large_string())
    batch = Fastokens(tokenizer, parse=parse).encode(text)
    expected = load_reference(tokenizer, parse=parse).encode(text)
    assert batch.ids.tolist() == expected.ids.tolist()
    assert batch.offsets.tolist() == expected.offsets.tolist()
    assert batch.offsets.dtype == np.int64


def test_its_caches_have_their_own_limit():
    assert Fastokens.renewable is False


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
