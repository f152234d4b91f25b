from __future__ import annotations

import pytest

from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Model
from tokmill.bill.states.states import checkpoint_bill
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

P = 124_439_808


@pytest.fixture(scope="module")
def gpt2() -> Model:
    return load_model(ModelSettings(name="gpt2"))


@pytest.mark.parametrize(
    ("precision", "optimizer", "weights", "states"),
    [
        ("mixed-16", "adamw", 2, 12),
        ("mixed-20", "adamw", 2, 12),
        ("fp32", "adamw", 4, 8),
        ("amp", "momentum", 4, 4),
        ("pure-16", "adamw", 2, 4),
        ("fp32", "sgd", 4, 0),
    ],
)
def test_a_checkpoint_holds_weights_master_copy_and_moments_and_no_gradient(
    gpt2, precision, optimizer, weights, states
):
    training = TrainingSettings(precision=precision, optimizer=optimizer, checkpoints=0)
    saved = [line.n_bytes for line in checkpoint_bill(gpt2, training).lines]
    assert (saved[0], sum(saved[1:])) == (weights * P, states * P)


def test_kept_checkpoints_are_there_and_one_more_while_it_is_written(gpt2):
    one = checkpoint_bill(gpt2, TrainingSettings(checkpoints=0))
    four = checkpoint_bill(gpt2, TrainingSettings(checkpoints=3))
    assert (one.low_bytes, one.n_bytes) == (0, 12 * P)
    assert (four.low_bytes, four.n_bytes, four.high_bytes) == (36 * P, 48 * P, 48 * P)


def test_the_shards_of_all_ranks_are_what_one_would_save(gpt2):
    alone = checkpoint_bill(gpt2, TrainingSettings(precision="mixed-16"))
    sharded = TrainingSettings(
        gpus=16, sharding="zero-3", offload="all", tensor_parallel=2, sequence_parallel=True
    )
    assert checkpoint_bill(gpt2, sharded) == alone


def test_an_adapter_is_saved_without_its_base(gpt2):
    training = TrainingSettings(
        adapter="lora", adapter_rank=8, adapter_targets="c_attn", checkpoints=0
    )
    trained = 12 * 8 * (768 + 3 * 768)
    saved = [line.n_bytes for line in checkpoint_bill(gpt2, training).lines]
    assert saved == [4 * trained, 4 * trained, 4 * trained]


def test_checkpoints_of_the_precision_aware_optimizer_hold_fp32_states() -> None:
    megatron = {"framework": "megatron", "sharding": "distributed-optimizer", "gpus": 8}
    model = load_model(ModelSettings(name="gpt2"))
    plain, aware = (
        checkpoint_bill(model, TrainingSettings(optimizer=name, **megatron))  # type: ignore[arg-type]
        for name in ("adamw", "adamw-bf16")
    )
    assert aware == plain
