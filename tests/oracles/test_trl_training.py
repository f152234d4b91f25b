"""TRL's own training loop learns from an export, and its loss is that of our mask."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracles import trl_trainer as training
from tests.oracles.conftest import import_or_skip

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def reader() -> None:
    import_or_skip("torch", "trl.trainer.sft_trainer")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Short chats, so that a step on two cores takes a fraction of a second."""
    import tokmill
    from tests.fixtures.datasets import CHATS, TOKENIZER

    return tokmill.sft(
        CHATS, tokenizer=TOKENIZER, output=tmp_path_factory.mktemp("small") / "out",
        max_tokens=64, too_long="drop-turns", progress=False,
    )  # fmt: skip


def test_the_loss_falls_and_begins_at_that_of_our_mask(small, tmp_path) -> None:
    trainer = training.make_trainer(small, tmp_path, steps=12, batch=4)
    theirs, ours = training.first_losses(trainer, small)
    assert theirs == pytest.approx(ours, abs=1e-5)
    losses = training.train(trainer)
    assert len(losses) == 12
    assert losses[0] == pytest.approx(np.log(small.manifest["tokenizer"]["vocab_size"]), rel=0.05)
    assert np.mean(losses[-4:]) < 0.95 * np.mean(losses[:4])


def test_a_mask_that_is_off_by_one_has_another_loss(small, tmp_path, monkeypatch) -> None:
    trainer = training.make_trainer(small, tmp_path, steps=1)
    moved = {ids: np.roll(mask, 1) for ids, mask in training.masks_by_ids(small).items()}
    for mask in moved.values():
        mask[0] = 0
    monkeypatch.setattr("tests.oracles.trl_trainer.masks_by_ids", lambda split: moved)
    theirs, wrong = training.first_losses(trainer, small)
    assert abs(theirs - wrong) > 1e-4
