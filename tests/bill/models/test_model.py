from __future__ import annotations

from tokmill.bill.models.model import Attention, Experts, Model, Tensor

EMBEDDING = Tensor("embed.weight", (10, 4), "embedding", "embedding", "vocabulary")
UP = Tensor("layers.{}.up.weight", (8, 4), "mlp", "linear", "columns", 4, 8, (0,))
STACKED = Tensor("layers.{}.experts", (6, 8, 4), "experts", "experts", "columns", 4, 8, (1, 2))
NORM = Tensor("layers.{}.norm.weight", (4,), "norm", "vector", layers=(0, 1, 2))


def model(experts: Experts | None) -> Model:
    return Model(
        name="tiny", family="llama", layers=3, hidden=4, ffn=8, vocabulary=10, positions=16,
        tied=True, activation="silu", attention=Attention(2, 2, 2),
        tensors=(EMBEDDING, UP, STACKED, NORM), experts=experts,
    )  # fmt: skip


def test_a_tensor_counts_in_every_layer_that_holds_it():
    assert (EMBEDDING.count, UP.count, STACKED.count, NORM.count) == (40, 32, 384, 12)


def test_parameters_are_the_sum_over_tensors_and_over_modules():
    tiny = model(None)
    assert tiny.parameters == 468
    assert tiny.by_module() == {"embedding": 40, "mlp": 32, "experts": 384, "norm": 12}


def test_active_parameters_leave_out_the_experts_that_a_token_does_not_choose():
    assert model(Experts(6, 2, 8, 0, (1, 2))).active_parameters == 468 - 384 * 4 // 6
    assert model(None).active_parameters == 468
