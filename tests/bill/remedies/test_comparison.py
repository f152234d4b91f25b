from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.bill_settings import BillSettings
from tokmill.bill.models.load import load_model
from tokmill.bill.remedies.advice import training_peak
from tokmill.bill.remedies.comparison import MOST_ROWS, Comparison, compare, default_axes, read_axes
from tokmill.errors import UsageError
from tokmill.settings.training import InferenceSettings, ModelSettings, TrainingSettings

NAME = "qwen2.5-0.5b"
MODEL = load_model(ModelSettings(name=NAME))


def compared(axes: dict[str, Any], name: str = NAME, **training: Any) -> Comparison:
    return compare(BillSettings(ModelSettings(name=name), TrainingSettings(**training)), axes)


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
        assert (each.n_bytes, each.high_bytes) == (peak.n_bytes, peak.high_bytes)


def test_models_are_compared_at_the_same_length():
    found = compared({"model": ["gpt2", "qwen2.5-3b"]}, name="", gpu="3090", adapter="lora")
    assert found.title == "GPU memory of training --sequence 1024 --adapter lora on RTX 3090"
    how = TrainingSettings(adapter="lora", sequence=1024, gpu="3090")
    for each in found.alternatives:
        peak = training_peak(load_model(ModelSettings(name=each.values[0])), how)
        assert (each.n_bytes, each.high_bytes) == (peak.n_bytes, peak.high_bytes)


def test_models_are_compared_as_they_are_asked_to_be_used():
    asked = BillSettings(inference=InferenceSettings(context=512), trains=False, serves=True)
    assert compare(asked, {"model": ["gpt2"]}).kind == "inference"
    with pytest.raises(UsageError, match="found adapter and batch; compare each alone"):
        compared({"adapter": ["lora"], "batch": [1]})


def test_what_cannot_be_says_why():
    found = compared({"offload": ["none", "optimizer"]}, gpus=2).alternatives
    assert found[0].why_not == ""
    assert (found[1].n_bytes, found[1].verdict) == (0, "")
    assert found[1].why_not.startswith("offload: optimizer needs sharding zero-1")


def test_axes_are_read_from_options():
    training = TrainingSettings()
    assert read_axes(["gpu=T4, A10", "micro-batch=1,2"], training) == {
        "gpu": ["T4", "A10"], "micro_batch": ["1", "2"]
    }  # fmt: skip
    assert read_axes([""], training) == default_axes(training)


def test_the_usual_comparison_is_of_precision_or_of_sharding():
    assert list(default_axes(TrainingSettings())) == ["precision", "checkpointing", "adapter"]
    assert next(iter(default_axes(TrainingSettings(gpus=8)))) == "sharding"


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"foo": [1]}, "no setting 'foo'; expected one of model, family"),
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


def test_a_setting_needs_values():
    with pytest.raises(UsageError, match="expected precision=VALUE,VALUE, found no values"):
        read_axes(["precision"], TrainingSettings())
