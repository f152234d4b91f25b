from __future__ import annotations

import pickle

import numpy as np
import pytest

from tokmill.bill.measuring.strategies import OPENERS, Files, Samples
from tokmill.settings.training import LAZY_LOADING, LOADING

IDS = [[1, 2, 3, 4, 5], [6, 300, 8, 9], [10]]
MASKS = [[0, 1, 1, 0, 0], [1, 1, 0, 0], [1]]


@pytest.fixture
def files(make_dataset) -> Files:
    directory = make_dataset(*IDS, masks=MASKS)
    return Files(tuple(sorted(directory.glob("*.bin"))), "<u2", masked=True)


def pairs(samples: Samples) -> list[tuple[list[int], list[int]]]:
    return [(ids.tolist(), labels.tolist()) for ids, labels in samples]


def test_every_strategy_of_the_settings_can_be_measured():
    assert tuple(OPENERS) == LOADING


@pytest.mark.parametrize("loading", LOADING)
def test_every_strategy_gives_the_same_samples(files: Files, loading: str):
    samples = Samples.of(files, loading, sequence=2, most_tokens=0)
    expected = [
        ([1, 2], [-100, 2]),
        ([3, 4], [3, -100]),
        ([6, 300], [6, 300]),
        ([8, 9], [-100] * 2),
    ]
    if loading == "concatenate":  # blocks run on over the ends of shards
        expected[2:] = [([5, 6], [-100, 6]), ([300, 8], [300, -100]), ([9, 10], [-100, 10])]
    assert pairs(samples) == expected
    assert len(samples) == len(expected)
    assert {values.dtype for values in samples[0]} == {np.dtype(np.int64)}


@pytest.mark.parametrize("loading", LOADING)
def test_a_worker_that_opens_the_dataset_itself_is_sent_no_copy_of_it(make_dataset, loading: str):
    directory = make_dataset(list(range(5000)))
    files = Files(tuple(directory.glob("*.bin")), "<u2", masked=False)
    sent = pickle.dumps(Samples.of(files, loading, sequence=2, most_tokens=0))
    assert (len(sent) < 5000) == (loading in LAZY_LOADING)
    assert pairs(pickle.loads(sent))[1] == ([2, 3], [2, 3])
