"""Lightning's Trainer takes sources and samplers: a look, an early break, a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tokmill.errors import UsageError
from tokmill.loader import BatchSampler, Loader, Phase, collate, windows

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Lightning's own, of itself, torch and few workers
]


@pytest.fixture(scope="module")
def lightning() -> Any:
    pytest.importorskip("torchdata.stateful_dataloader", reason="needs torchdata")
    return pytest.importorskip("lightning.pytorch", reason="needs lightning: make oracles")


def make(lightning: Any, directory: Path, **options: Any) -> Any:
    """Return a trainer that trains on the CPU, and says nothing."""
    return lightning.Trainer(
        accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=directory, use_distributed_sampler=False, barebones=False,
        enable_checkpointing=options.pop("enable_checkpointing", False), **options,
    )  # fmt: skip


def recorder(lightning: Any) -> Any:
    """Return a module that notes the batches that it trains on."""
    import torch

    class Recorder(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))
            self.seen: list[list[list[int]]] = []
            self.validated = 0

        def training_step(self, batch: Any, _: int) -> Any:
            self.seen.append(batch["input_ids"].tolist())
            return self.weight.sum()

        def validation_step(self, batch: Any, _: int) -> None:
            self.validated += len(batch["input_ids"])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Recorder()


def batches_of(source: Any, epochs: int) -> list[list[list[int]]]:
    return [batch["input_ids"].tolist() for batch in Loader(source, 26, seed=4, epochs=epochs)]


def data(source: Any, stateful: bool = False) -> Any:
    from torch.utils.data import DataLoader
    from torchdata.stateful_dataloader import StatefulDataLoader

    kind: Any = StatefulDataLoader if stateful else DataLoader
    return kind(source, batch_sampler=BatchSampler(source, 26, seed=4), collate_fn=collate)


def test_sanity_checks_and_validation_use_nothing_up(lightning, pretrained, tmp_path) -> None:
    source = windows(pretrained, 512, shift=True)
    module = recorder(lightning)
    trainer = make(lightning, tmp_path, max_epochs=2, num_sanity_val_steps=2)
    loader = data(source)
    next(iter(loader))  # a look, as people take it
    trainer.fit(module, loader, data(source))
    assert module.seen == batches_of(source, 2)
    assert module.validated == 26 * (2 + 2 * 5)


def test_epochs_that_are_cut_have_other_batches(lightning, pretrained, tmp_path) -> None:
    source = windows(pretrained, 512, shift=True)
    module = recorder(lightning)
    make(lightning, tmp_path, max_epochs=2, limit_train_batches=3).fit(module, data(source))
    every = batches_of(source, 2)
    assert module.seen == every[:3] + every[5:8]


@pytest.mark.parametrize("n_steps", [3, 5, 7])
def test_a_checkpoint_goes_on_at_its_step(lightning, pretrained, tmp_path, n_steps: int) -> None:
    source = windows(pretrained, 512, shift=True)
    every = batches_of(source, 2)
    module, resumed = recorder(lightning), recorder(lightning)
    callback = lightning.callbacks.ModelCheckpoint(
        tmp_path, "at-{step}", every_n_train_steps=1, save_top_k=-1
    )
    options: Any = {"max_epochs": 2, "enable_checkpointing": True}
    trainer = make(lightning, tmp_path, callbacks=[callback], **options)
    trainer.fit(module, data(source, stateful=True))
    assert module.seen == every
    trainer = make(lightning, tmp_path, **options)
    path = tmp_path / f"at-step={n_steps}.ckpt"
    trainer.fit(resumed, data(source, stateful=True), ckpt_path=path)
    assert resumed.seen == every[n_steps:]


def test_phases_are_one_epoch_of_a_trainer(lightning, pretrained, tmp_path) -> None:
    from torch.utils.data import ConcatDataset, DataLoader

    source = windows(pretrained, 512, shift=True)
    phases = [Phase("24 samples", length=128, batch=8), Phase("40 samples", length=512)]
    sampler = BatchSampler(source, phases=phases)
    loader: Any = DataLoader(
        ConcatDataset(sampler.sources), batch_sampler=sampler, collate_fn=collate
    )
    module = recorder(lightning)
    make(lightning, tmp_path, max_epochs=1).fit(module, loader)
    assert module.seen == [one["input_ids"].tolist() for one in Loader(source, phases=phases)]
    with pytest.raises(UsageError, match="phases are one epoch, 0; found 1: train for one epoch"):
        make(lightning, tmp_path, max_epochs=2).fit(module, loader)
