"""What no row models is said, and only then."""

from __future__ import annotations

import pytest

from tokmill.bill.activations.situation import situation
from tokmill.bill.gpus import BARELY, Gpu, gpu_verdict
from tokmill.bill.models.load import load_model
from tokmill.bill.training_bill import left_out, training_bill
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings


def said(name: str, **settings: object) -> list[str]:
    model = load_model(ModelSettings(name=name))
    training = TrainingSettings(sequence=8192, **settings)  # type: ignore[arg-type]
    return list(left_out(situation(model, training), training))


def test_a_measured_family_on_one_gpu_leaves_nothing_out() -> None:
    assert said("llama-3-8b") == []


@pytest.mark.parametrize(
    ("name", "settings", "word"),
    [
        ("mixtral-8x7b", {}, "experts"),
        ("gemma-3-1b", {}, "sliding"),
        ("bloom-560m", {}, "bloom has no sdpa in transformers: counted as eager"),
        ("bloom-560m", {"attention": "flash"}, "counted as eager"),
        ("gemma-2-2b", {}, "gemma2 has no sdpa in transformers: counted as eager"),
        ("gpt-oss-20b", {"attention": "sdpa-mask"}, "counted as eager"),
        ("gemma-2-2b", {"attention": "flash"}, "counted with the flash kernel that is set"),
        ("baichuan-7b", {}, "not measured"),
        ("llama-3-8b", {"adapter": "dora"}, "DoRA"),
        ("llama-3-8b", {"framework": "megatron"}, "Megatron"),
    ],
)
def test_what_is_not_modelled_is_said(name: str, settings: dict[str, object], word: str) -> None:
    assert any(word in sentence for sentence in said(name, **settings))


def test_the_bounds_of_the_peak_are_the_largest_of_all_moments() -> None:
    """They decide the verdict: a moment that is expected to need less may have a higher bound."""
    model = load_model(ModelSettings(name="llama-3-8b"))
    found = training_bill(model, TrainingSettings(gpus=8, sharding="fsdp"))
    assert found.peak.n_bytes == max(moment.n_bytes for moment in found.moments)
    assert found.peak.high_bytes == max(moment.high_bytes for moment in found.moments)
    assert found.peak.low_bytes == max(moment.low_bytes for moment in found.moments)
    assert found.peak.high_bytes > sum(line.high_bytes for line in found.peak.lines)
    gpu = Gpu("between", (found.peak.high_bytes + found.peak.n_bytes) // 2)
    assert gpu_verdict(found.peak, gpu) == BARELY
