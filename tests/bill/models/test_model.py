"""Counts of a model's tensors, and the attention that runs for the one that is asked for."""

from __future__ import annotations

import pytest

from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Attention, Experts, Model, Tensor
from tokmill.bill.training_bill import training_bill
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

EMBEDDING = Tensor("embed.weight", (10, 4), "embedding", "embedding", "vocabulary")
UP = Tensor("layers.{}.up.weight", (8, 4), "mlp", "linear", "columns", 4, 8, (0,))
STACKED = Tensor("layers.{}.experts", (6, 8, 4), "experts", "experts", "columns", 4, 8, (1, 2))
NORM = Tensor("layers.{}.norm.weight", (4,), "norm", "vector", layers=(0, 1, 2))
ASKED = ("auto", "flash", "sdpa-mask", "eager")


def model(experts: Experts | None) -> Model:
    return Model(
        name="tiny", family="llama", layers=3, hidden=4, ffn=8, vocabulary=10, positions=16,
        tied=True, activation="silu", attention=Attention(2, 2, 2),
        tensors=(EMBEDDING, UP, STACKED, NORM), experts=experts,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("llama-3.2-1b", ("flash", "flash", "sdpa-mask", "eager")),
        ("gemma-2-2b", ("eager", "flash", "eager", "eager")),
        ("gpt-oss-20b", ("eager", "flash", "eager", "eager")),
        ("bloom-560m", ("eager", "eager", "eager", "eager")),
    ],
)
def test_attention_is_eager_where_a_family_lacks_the_kernel(
    name: str, runs: tuple[str, ...]
) -> None:
    model = load_model(ModelSettings(name=name))
    assert tuple(model.style.attention(asked) for asked in ASKED) == runs


def test_the_bill_of_gemma_2_counts_the_scores_of_its_default_eager_attention() -> None:
    model = load_model(ModelSettings(name="gemma-2-2b"))
    peaks = {
        asked: training_bill(model, TrainingSettings(attention=asked, sequence=2048)).peak.n_bytes
        for asked in ASKED
    }
    assert peaks["auto"] == peaks["eager"] > peaks["flash"]
