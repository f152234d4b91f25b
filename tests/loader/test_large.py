"""A large dataset opens from its manifest alone, and reading it does not fill the memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fixtures.written_datasets import write_manifest
from tokmill.dataset.sidecars import HEADER, MAGIC
from tokmill.loader import documents, windows

SHARD_TOKENS = 1 << 29
"""Of a shard of 2^30 bytes."""

Make = Callable[[int, int], Path]


@pytest.fixture
def make_sparse(tmp_path: Path, make_manifest) -> Make:
    """Make a dataset of some shards from files without blocks: all ids are 0."""

    def make(n_shards: int, n_documents: int) -> Path:
        shards, directory = [], tmp_path / "large"
        directory.mkdir()
        for i in range(n_shards):
            name = f"train-{i:07d}-0000"
            counts = {"documents": n_documents, "tokens": SHARD_TOKENS}
            shards.append({"name": name, "split": "train", **counts})
            with (directory / f"{name}.bin").open("wb") as file:
                file.truncate(2 * SHARD_TOKENS)
            if i in (0, n_shards - 1):
                write_index(directory / f"{name}.idx", n_documents)
        totals = {"documents": n_shards * n_documents, "tokens": n_shards * SHARD_TOKENS}
        names = [f"{one['name']}.{ending}" for one in shards for ending in ("bin", "idx")]
        files = [{"name": name, "bytes": 0, "blake3": "0" * 64} for name in names]
        write_manifest(directory, make_manifest(totals, shards=shards, files=files))
        return directory

    return make


def write_index(path: Path, n_documents: int) -> None:
    length = SHARD_TOKENS // n_documents
    lengths = np.full(n_documents, length, "<i4")
    offsets = np.arange(n_documents, dtype="<i8") * (2 * length)
    header = HEADER.pack(MAGIC, 1, 8, n_documents, n_documents + 1)
    indices = np.arange(n_documents + 1, dtype="<i8")
    path.write_bytes(b"".join([header, lengths.tobytes(), offsets.tobytes(), indices.tobytes()]))


def test_a_dataset_of_a_trillion_tokens_opens_at_once(make_sparse: Make) -> None:
    directory = make_sparse(1_863, 1 << 10)
    start = time.process_time()
    source = windows(directory, 4096, shift=True, document_ids=True)
    row = source[-1]
    taken_s = time.process_time() - start
    assert len(source) * 4096 > 10**12
    assert row["document_ids"][-1] == 1_863 * 1_024 - 1
    assert documents(directory)[0]["input_ids"].shape == (1 << 19,)
    assert taken_s < 1


PROGRAM = """
import json, sys
import numpy as np
from tokmill.loader import windows

def anonymous_bytes():
    for line in open("/proc/self/smaps_rollup"):
        if line.startswith("Anonymous:"):
            return 1024 * int(line.split()[1])

def resident_bytes():
    return 4096 * int(open("/proc/self/statm").read().split()[1])

source = windows(sys.argv[1], 4096, position_ids=True, shift=False)
numbers = np.random.default_rng(0).permutation(len(source))
for start in range(0, 640, 64):
    source.batch(numbers[start : start + 64])
before = anonymous_bytes(), resident_bytes()
for start in range(0, len(numbers), 4096):
    assert not source.batch(numbers[start : start + 64])["input_ids"].any()
after = anonymous_bytes(), resident_bytes()
print(json.dumps([n - m for n, m in zip(after, before)] + [len(source)]))
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's smaps")
def test_memory_is_flat_over_a_billion_tokens(make_sparse: Make) -> None:
    directory = make_sparse(2, 1 << 20)
    command = [sys.executable, "-c", PROGRAM, str(directory)]
    done: Any = subprocess.run(command, capture_output=True, text=True, check=True)
    anonymous, resident, n_rows = json.loads(done.stdout)
    assert n_rows * 4096 == 2 * SHARD_TOKENS > 10**9
    assert anonymous < 4 << 20
    assert resident < 48 << 20  # what is mapped of two indices of 20 MiB each
