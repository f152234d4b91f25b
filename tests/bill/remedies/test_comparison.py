from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.gpus import find_gpu
from tokmill.bill.models.load import load_model
from tokmill.bill.remedies.advice import training_peak
from tokmill.bill.remedies.comparison import (
    AXES,
    MOST_ROWS,
    Comparison,
    compare,
    default_axes,
    read_axes,
)
from tokmill.bill.verdict import DOES_NOT_FIT, FITS
from tokmill.errors import UsageError
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

MODEL = load_model(ModelSettings(name="qwen2.5-0.5b"))


def compared(axes: dict[str, Any], gpu: str = "", **training: Any) -> Comparison:
    return compare(MODEL, TrainingSettings(**training), find_gpu(gpu) if gpu else None, axes)


def test_every_combination_has_the_peak_of_its_own_bill():
    found = compared({"precision": ["amp", "pure-16"], "checkpointing": ["none", "full"]})
    assert found.axes == ("precision", "checkpointing")
    assert [each.values for each in found.alternatives] == [
        ("amp", "none"), ("amp", "full"), ("pure-16", "none"), ("pure-16", "full")
    ]  # fmt: skip
    for each in found.alternatives:
        precision, checkpointing = each.values
        training = TrainingSettings(precision=precision, checkpointing=checkpointing, sequence=2048)
        peak = training_peak(MODEL, training)
        assert (each.n_bytes, each.low_bytes, each.high_bytes) == (
            peak.n_bytes, peak.low_bytes, peak.high_bytes
        )  # fmt: skip


def test_gpus_are_judged_one_by_one():
    found = compared({"gpu": ["T4", "H100"]}, gpu="A10", micro_batch=8)
    assert [each.verdict for each in found.alternatives] == [DOES_NOT_FIT, FITS]
    old, new = (each.n_bytes for each in found.alternatives)
    assert new - old == 2 * (32 * 2**20 - 8_519_680)  # workspaces of cuBLAS on Hopper


def test_without_a_gpu_nothing_is_judged():
    assert {each.verdict for each in compared({"loss": AXES["loss"]}).alternatives} == {""}


def test_computation_is_a_multiple_of_the_first_alternatives():
    first, full = compared({"checkpointing": ["none", "full"]}).alternatives
    assert first.computation == 1
    assert 1.2 < full.computation < 1.34  # forward again: a third of 6 P, but not of the head
    frozen = compared({"adapter": ["none", "lora"]}).alternatives[1]
    assert 0.6 < frozen.computation < 0.8


def test_what_cannot_be_says_why():
    found = compared({"offload": ["none", "optimizer"]}).alternatives
    assert found[0].why_not == ""
    assert (found[1].n_bytes, found[1].verdict) == (0, "")
    assert found[1].why_not.startswith("offload: optimizer needs sharding zero-1")


def test_axes_are_read_from_options():
    training = TrainingSettings()
    assert read_axes(["gpu=T4, A10", "micro-batch=1,2"], training) == {
        "gpu": ["T4", "A10"], "micro_batch": ["1", "2"]
    }  # fmt: skip
    assert list(read_axes(["precision,micro-batch"], training)) == ["precision", "micro_batch"]
    assert read_axes([""], training) == default_axes(training)


def test_the_usual_comparison_is_of_precision_or_of_sharding():
    assert list(default_axes(TrainingSettings())) == ["precision", "checkpointing", "adapter"]
    assert next(iter(default_axes(TrainingSettings(gpus=8)))) == "sharding"


@pytest.mark.parametrize("name", AXES)
def test_every_built_in_value_can_be_compared(name):
    found = compared({name: AXES[name]}, sequence=4096)
    assert len(found.alternatives) == len(AXES[name])


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"foo": [1]}, "no setting 'foo'; expected one of gpu, gpus"),
        ({"precision": ["fp31"]}, "compare: precision: .*expected one of .*; found 'fp31'"),
        ({"micro_batch": ["a"]}, "compare: micro_batch: "),
        ({"gpu": ["XX"]}, "gpu: 'XX' is not known"),
        ({"gpus": []}, r"compare: gpus: expected a list of values, found \[\]"),
        ({"gpus": 8}, "compare: gpus: expected a list of values, found 8"),
        ({"precision": "amp"}, "compare: precision: expected a list of values, found 'amp'"),
        (
            {"sequence": range(1, 17), "micro_batch": range(1, 17)},
            f"at most {MOST_ROWS} combinations, found 256",
        ),
    ],
)
def test_what_does_not_exist_is_refused(axes, message):
    with pytest.raises(UsageError, match=message):
        compared(axes)


def test_a_setting_without_built_in_values_needs_some():
    with pytest.raises(UsageError, match="'prefetch' has no built-in values"):
        read_axes(["prefetch"], TrainingSettings())
