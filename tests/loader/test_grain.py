"""Sources work in Grain as they are: shuffled, batched, in worker processes, resumed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.loader.naive import naive
from tokmill.api.dataset import Dataset
from tokmill.loader import documents, packs, windows

pytest.importorskip("grain", reason="tests of Grain need grain")


@pytest.fixture(scope="module")
def grain() -> Any:
    import grain

    return grain


def test_a_source_is_a_source_of_grain(grain: Any, chats: Dataset) -> None:
    for source in (documents(chats), windows(chats, 64, shift=False), packs(chats, shift=False)):
        assert isinstance(source, grain.sources.RandomAccessDataSource)


def test_grain_shuffles_and_batches_windows(grain: Any, pretrained: Dataset) -> None:
    source = windows(pretrained, 64, shift=True, document_ids=True)
    dataset = grain.MapDataset.source(source).shuffle(seed=3).batch(4)
    batches = [dataset[i] for i in range(len(dataset))]
    assert batches[0]["input_ids"].shape == (4, 64)
    ids = np.concatenate([batch["document_ids"] * 2**20 + batch["input_ids"] for batch in batches])
    numbers, expected = naive(pretrained).numbers, naive(pretrained).ids
    stream = (numbers * 2**20 + expected)[: len(source) * 64].reshape(-1, 64)
    np.testing.assert_array_equal(np.sort(ids, 0), np.sort(stream, 0))


def test_grain_continues_documents_where_it_stood(grain: Any, chats: Dataset) -> None:
    iterator = iter(grain.MapDataset.source(documents(chats)).shuffle(seed=1).to_iter_dataset())
    for _ in range(5):
        next(iterator)
    state = iterator.get_state()
    rest = [sample["mask"].tolist() for sample in iterator]
    iterator.set_state(state)
    assert [sample["mask"].tolist() for sample in iterator] == rest
    assert len(rest) == len(naive(chats).documents) - 5


PROGRAM = """
import sys
import grain, numpy as np
from tokmill.loader import windows

if __name__ == "__main__":
    source = windows(sys.argv[1], 64, shift=False)
    sampler = grain.samplers.IndexSampler(
        len(source), grain.sharding.NoSharding(), shuffle=True, num_epochs=1, seed=0
    )
    loader = grain.DataLoader(data_source=source, sampler=sampler, worker_count=2)
    rows = np.stack([row["labels"] for row in loader])
    wanted = source.batch(range(len(source)))["labels"]
    assert not np.array_equal(rows, wanted)
    assert np.array_equal(np.sort(rows, 0), np.sort(wanted, 0))
    print("every row")
"""


def test_worker_processes_of_grain_open_the_dataset(chats: Dataset, tmp_path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), str(chats.directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "every row\n"), done.stderr
