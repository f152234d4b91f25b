"""Logits kept for metrics: twice those of all batches at once, from all ranks, on each GPU."""

from __future__ import annotations

import pytest

from tokmill.bill.activations.metrics import host_line, joined_lines
from tokmill.bill.activations.situation import situation
from tokmill.bill.models.load import load_model
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

MODEL = load_model(
    ModelSettings(family="llama", layers=2, hidden=64, heads=4, ffn=128, vocabulary=100)
)
TOKENS, VOCABULARY = 8, 100


def joined(**settings: object) -> int:
    training = TrainingSettings(**{"precision": "fp32", "metric_batches": 6, **settings})  # type: ignore[arg-type]
    symbols = {"n": TOKENS, "V": VOCABULARY}
    (line,) = joined_lines(situation(MODEL, training), training, symbols)
    return line.n_bytes // (TOKENS * VOCABULARY)


def test_logits_of_all_data_parallel_ranks_are_gathered_on_each() -> None:
    assert joined(gpus=8) == 8 * joined()
    assert joined(gpus=8, tensor_parallel=2) == 4 * joined()


@pytest.mark.parametrize(
    ("settings", "n_bytes"),
    [
        ({}, 6 * 4),
        ({"eval_accumulation": 2}, 6 * 8),
        ({"eval_accumulation": 6}, 6 * 4),
        ({"precision": "amp"}, 6 * 4),
        ({"precision": "pure-16"}, 6 * (4 + 2)),
        ({"precision": "pure-16", "eval_accumulation": 2}, 6 * 8),
        ({"gpus": 8, "tensor_parallel": 2}, 4 * 6 * 4),
    ],
)
def test_a_process_keeps_all_logits_in_host_ram(settings: dict[str, object], n_bytes: int) -> None:
    training = TrainingSettings(**{"precision": "fp32", "metric_batches": 6, **settings})  # type: ignore[arg-type]
    line = host_line(training, {"n": TOKENS, "V": VOCABULARY, "R": 1})
    assert line.n_bytes == n_bytes * TOKENS * VOCABULARY
