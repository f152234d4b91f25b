"""Which attention runs: what is asked for, where a family has it."""

from __future__ import annotations

import pytest

from tokmill.bill.models.load import load_model
from tokmill.bill.training_bill import training_bill
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

ASKED = ("auto", "flash", "sdpa-mask", "eager")


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("llama-3.2-1b", ("flash", "flash", "sdpa-mask", "eager")),
        ("gemma-2-2b", ("eager", "flash", "eager", "eager")),
        ("gpt-oss-20b", ("eager", "flash", "eager", "eager")),
        ("bloom-560m", ("eager", "eager", "eager", "eager")),
    ],
)
def test_a_kernel_that_a_family_has_not_runs_as_eager_attention(
    name: str, runs: tuple[str, ...]
) -> None:
    model = load_model(ModelSettings(name=name))
    assert tuple(model.style.attention(asked) for asked in ASKED) == runs


def test_the_bill_of_gemma_2_counts_the_scores_that_its_default_keeps() -> None:
    model = load_model(ModelSettings(name="gemma-2-2b"))
    peaks = {
        asked: training_bill(model, TrainingSettings(attention=asked, sequence=2048)).peak.n_bytes
        for asked in ASKED
    }
    assert peaks["auto"] == peaks["eager"] > peaks["flash"]
