"""Sources work in the data loader of torchtitan 0.3; later ones are on Grain: see test_grain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tokmill.api.dataset import Dataset
from tokmill.loader import collate, windows

torch: Any = pytest.importorskip("torch", reason="tests of torchtitan need torch")


def batch_of(rows: list[Any]) -> Any:
    """Return a batch as torchtitan's trainer takes it."""
    batch = collate(rows)
    return {"input": batch["input_ids"], "positions": batch["position_ids"]}, batch["labels"]


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata calls it
@pytest.mark.parametrize("n_workers", [0, 2])
def test_the_loader_of_0_3_reads_windows_and_continues(pretrained: Dataset, n_workers: int) -> None:
    module = pytest.importorskip(
        "torchtitan.components.dataloader", reason="needs torchtitan 0.3 with torchdata and tyro"
    )
    source = windows(pretrained, 256, shift=True, position_ids=True)

    def make() -> Any:
        sampler = torch.utils.data.DistributedSampler(source, num_replicas=2, rank=1, seed=5)
        return module.ParallelAwareDataloader(
            source, 1, 2, batch_size=4, sampler=sampler, collate_fn=batch_of, num_workers=n_workers
        )

    loader = make()
    iterator = iter(loader)
    inputs, labels = next(iterator)
    assert inputs["input"].shape == inputs["positions"].shape == labels.shape == (4, 256)
    state = loader.state_dict()
    rest = [labels for _, labels in iterator]
    again = make()
    again.load_state_dict(state)
    assert [one.tolist() for _, one in again] == [one.tolist() for one in rest]
    sampler = torch.utils.data.DistributedSampler(source, num_replicas=2, rank=1, seed=5)
    wanted = source.batch(list(sampler))["labels"]
    np.testing.assert_array_equal(torch.cat([labels, *rest]).numpy(), wanted)
