"""Sources work in the data loaders of torchtitan: that of 0.3.0, and that which is on Grain."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.loader.naive import naive
from tokmill.api.dataset import Dataset
from tokmill.loader import collate, packs, windows

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


@pytest.mark.parametrize("kind", ["windows", "packs"])
def test_the_loader_on_grain_reads_every_row(pretrained, chats, kind: str) -> None:
    data = pytest.importorskip(
        "torchtitan.components.data", reason="needs a torchtitan whose data is on Grain"
    )
    if kind == "windows":
        source: Any = windows(pretrained, 256, shift=True, position_ids=True)
    else:
        source = packs(chats, shift=True)

    class Rows:
        def build(self, *, dataset_iteration_policy: Any) -> Any:
            return source

    class ToText(data.SampleProcessor):
        @dataclass(kw_only=True, slots=True)
        class Config(data.SampleProcessor.Config):
            pass

        def __init__(self, config: Any, *, context: Any) -> None:
            pass

        def __call__(self, row: Any, rng: Any) -> Any:
            return data.TextSequence(
                input_ids=row["input_ids"], labels=row["labels"], positions=row["position_ids"]
            )

    config = data.GrainDataLoader.Config(
        dataset=data.SingleDatasetConfig(source=Rows(), processor=ToText.Config()), repeat=False
    )
    loader = config.build(
        dp_world_size=1,
        dp_rank=0,
        tokenizer=SimpleNamespace(),
        max_context_length=source.length,
        num_tokens_per_batch=source.length,
    )
    batches = list(loader)
    loader.close()
    labels = np.sort(np.stack([labels.numpy() for _, labels in batches]), 0)
    np.testing.assert_array_equal(labels, np.sort(source.batch(range(len(source)))["labels"], 0))
    first = batches[0][0]
    assert first["input"].shape == first["positions"].shape == (source.length,)
    if kind == "windows":
        ids = np.stack([inputs["input"].numpy() for inputs, _ in batches])
        stream = naive(pretrained).ids[: len(source) * 256].reshape(-1, 256)
        np.testing.assert_array_equal(np.sort(ids, 0), np.sort(stream, 0))
