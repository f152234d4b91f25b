"""What llm.c's loader returns is compared with the documents; with a checkout, its C is run."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest
from click.testing import CliRunner

from bench.llmc_reader import differences, expected_files, main
from tests.fixtures.streams import documents_of
from tokmill.api.dataset import Dataset


def batches_of(tokens: np.ndarray, size: int) -> np.ndarray:
    """Return the batches that a loader cuts from a file: inputs, and targets one token later."""
    count = (len(tokens) - 1) // size
    inputs, targets = tokens[: count * size], tokens[1 : count * size + 1]
    return np.stack([inputs.reshape(-1, size), targets.reshape(-1, size)], axis=1)


def test_batches_of_the_files_differ_in_nothing(pretrained: Dataset) -> None:
    whole = expected_files(pretrained.directory, "train", [10**9])[0]
    files = np.split(whole, [20_000])
    batches = np.concatenate([batches_of(tokens, 32) for tokens in files])
    assert len(whole) == sum(len(one) for one in documents_of(pretrained, "train"))
    assert differences(files, batches) == (0, len(whole) - len(batches) * 32)
    changed = batches.copy()
    changed[5, 1, 3] += 1
    assert differences(files, changed)[0] == 1
    assert differences(files, batches[:-1])[0] == 32


@pytest.mark.skipif(
    "TOKMILL_LLMC" not in os.environ or shutil.which("gcc") is None,
    reason="TOKMILL_LLMC names no checkout of llm.c, or gcc is missing",
)
def test_the_loader_in_c_returns_every_token(pretrained: Dataset) -> None:
    checkout = os.environ["TOKMILL_LLMC"]
    arguments = [checkout, str(pretrained.directory), "--file-tokens", "9000"]
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "train: 8 files" in done.output
    assert done.output.count(" 0 differences") == 2
