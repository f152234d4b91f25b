"""Datasets for measuring loaders are datasets, and what is printed has every contender."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.loader import Case, measure, nanogpt_batches, tokmill_batches
from bench.loader_data import write_dataset
from tokmill.loader import documents, windows


@pytest.mark.parametrize("sparse", [False, True])
def test_a_dataset_of_any_size_opens(tmp_path: Path, sparse: bool) -> None:
    write_dataset(tmp_path, shards=2, shard_tokens=1_000, document_tokens=100, sparse=sparse)
    assert len(documents(tmp_path)) == 20
    found = windows(tmp_path, 50, shift=False).batch(range(40))["input_ids"]
    assert found.shape == (40, 50)
    assert bool(found.any()) != sparse
    np.testing.assert_array_equal(documents(tmp_path)[19]["input_ids"], found[-2:].reshape(-1))


def test_contenders_make_batches_of_the_same_shape(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="nanoGPT's get_batch needs torch")
    write_dataset(tmp_path, shards=1, shard_tokens=10_000, document_tokens=100, sparse=False)
    case = Case(tmp_path, 4, 64)
    ours = next(tokmill_batches(case))
    for mine, other in zip(ours.values(), next(nanogpt_batches(case)), strict=True):
        assert (mine.shape, mine.dtype) == (other.shape, other.dtype)


def test_every_contender_has_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="nanoGPT's get_batch needs torch")
    pytest.importorskip(
        "olmo_core.data", reason="ai2-olmo-core is not installed", exc_type=ImportError
    )
    write_dataset(tmp_path, shards=1, shard_tokens=40_000, document_tokens=100, sparse=False)
    measure(Case(tmp_path, 4, 64), rounds=2, tokens=1_000)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[1] for line in printed] == [
        "tokmill", "nanoGPT get_batch", "OLMo-core, no threads", "OLMo-core, its default",
    ]  # fmt: skip
    assert printed[0].endswith("1.00 / 1.00 / 1.00 |")
