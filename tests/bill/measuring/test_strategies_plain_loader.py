from __future__ import annotations

import pytest

from tokmill.bill.measuring.strategies import Files, Samples, batches
from tokmill.errors import WorkerError


@pytest.mark.parametrize(("workers", "start"), [(0, "fork"), (2, "spawn"), (3, "spawn")])
def test_batches_come_whole_and_in_order_for_any_number_of_workers(
    make_dataset, workers: int, start: str
):
    directory = make_dataset(list(range(11)))
    files = Files(tuple(directory.glob("*.bin")), "<u2", masked=False)
    samples = Samples.of(files, "lazy", sequence=2, most_tokens=0)
    found = [ids.tolist() for ids, _ in batches(samples, 2, workers, start, prefetch=1)]
    assert found == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


def test_a_worker_that_ends_is_an_error_and_no_wait(make_dataset):
    directory = make_dataset(list(range(11)))
    (path,) = directory.glob("*.bin")
    samples = Samples.of(Files((path,), "<u2", masked=False), "lazy", sequence=2, most_tokens=0)
    path.unlink()
    with pytest.raises(WorkerError, match="a loader worker ended with code 1"):
        list(batches(samples, 2, 1, "spawn", prefetch=1))
