"""Sources work in the data loader of torchtitan 0.3; later ones are on Grain: see test_grain."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from tokmill.api.dataset import Dataset
from tokmill.loader import BatchSampler, Loader, Phase, collate, windows

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
        sampler = BatchSampler(source, 4, rank=1, world=2, seed=5, endless=True)
        return module.ParallelAwareDataloader(
            source, 1, 2, batch_sampler=sampler, collate_fn=batch_of, num_workers=n_workers
        )

    loader = make()
    iterator = iter(loader)
    inputs, labels = next(iterator)
    assert inputs["input"].shape == inputs["positions"].shape == labels.shape == (4, 256)
    state = loader.state_dict()
    wanted = Loader(source, 4, rank=1, world=2, seed=5, epochs=2)
    n_batches = len(wanted)
    assert n_batches == 2 * wanted.batches_per_epoch
    rest = [labels for _, labels in islice(iterator, n_batches - 1)]
    again = make()
    again.load_state_dict(state)
    assert [one.tolist() for _, one in islice(again, n_batches - 1)] == [
        one.tolist() for one in rest
    ]
    found = torch.stack([labels, *rest]).numpy()
    np.testing.assert_array_equal(found, [batch["labels"] for batch in wanted])


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata calls it
def test_phases_of_one_length_are_read_by_the_loader_of_0_3(pretrained: Dataset) -> None:
    module = pytest.importorskip(
        "torchtitan.components.dataloader", reason="needs torchtitan 0.3 with torchdata and tyro"
    )
    sources = {
        name: windows(pretrained, 256, shift=True, position_ids=True) for name in ("web", "math")
    }
    phases = [Phase("32 samples", {"web": 1}, batch=8), Phase(shares={"web": 1, "math": 1})]

    def make() -> Any:
        sampler = BatchSampler(sources, phases=phases, rank=1, world=2, endless=True)
        dataset = torch.utils.data.ConcatDataset(sampler.sources)
        return module.ParallelAwareDataloader(
            dataset, 1, 2, batch_sampler=sampler, collate_fn=batch_of
        )

    wanted = [one["labels"] for one in islice(Loader(sources, phases=phases, rank=1, world=2), 9)]
    loader = make()
    found = [labels for _, labels in islice(loader, 3)]
    again = make()
    again.load_state_dict(loader.state_dict())
    found += [labels for _, labels in islice(again, 6)]
    np.testing.assert_array_equal(torch.stack(found).numpy(), wanted)
