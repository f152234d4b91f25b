"""A rank's share of heads, widths and tokens."""

from __future__ import annotations

from tokmill.bill.activations.situation import activation_symbols, situation
from tokmill.bill.models.load import load_model
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

MODEL = load_model(
    ModelSettings(
        family="llama", layers=2, hidden=64, heads=4, kv_heads=2, ffn=128, vocabulary=100,
        positions=512,
    )
)  # fmt: skip


def symbols(**settings: object) -> dict[str, float]:
    training = TrainingSettings(sequence=64, micro_batch=2, **settings)  # type: ignore[arg-type]
    return activation_symbols(MODEL, training, situation(MODEL, training))


def test_tensor_parallelism_divides_heads_and_widths_but_one_key_head_stays() -> None:
    found = symbols(tensor_parallel=4, gpus=4)
    assert (found["a"], found["k"], found["f"], found["d"]) == (1, 1, 32, 64)


def test_sequence_parallelism_divides_what_lies_between_the_matrices() -> None:
    assert symbols(tensor_parallel=4, gpus=4)["u"] == 1
    assert symbols(tensor_parallel=4, gpus=4, sequence_parallel=True)["u"] == 4


def test_context_parallelism_divides_the_tokens() -> None:
    assert (symbols()["n"], symbols(context_parallel=2, gpus=2)["n"]) == (128, 64)
