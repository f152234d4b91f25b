from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.models.load import load_model, model_from_config
from tokmill.bill.states.precision import frozen_bytes, frozen_type
from tokmill.bill.training_bill import training_bill
from tokmill.settings.training import ModelSettings, TrainingSettings

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}


@pytest.mark.parametrize(
    ("quantization", "weights", "matrix", "experts"),
    [
        (AWQ, "auto", 0.5 + 2.5 / 128, 0.5 + 2.5 / 128),
        (AWQ, "bf16", 2, 2),
        (AWQ, "nf4", 0.5625, 2),
        ({"quant_method": "mxfp4"}, "auto", 2, 2),
        ({}, "mxfp4", 2, 0.5 + 1 / 32),
        ({}, "q8_0", 8.5 / 8, 8.5 / 8),
        ({}, "int8", 1 + 4 / 64, 2),
    ],
)
def test_a_frozen_base_is_as_asked_or_as_its_files_have_it(
    quantization: dict[str, object], weights: str, matrix: float, experts: float
) -> None:
    shape = {"num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 99}
    mixture = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    config = {"model_type": "qwen3_moe", **shape, **mixture, "quantization_config": quantization}
    model = model_from_config(config)
    training = TrainingSettings(adapter="lora", weights=weights)
    found = {t.name: frozen_bytes(t, model, training) for t in model.tensors}
    assert found["model.layers.{}.self_attn.q_proj.weight"] == matrix
    assert found["model.layers.{}.mlp.experts.gate_up_proj"] == experts


def test_qlora_is_lora_on_nf4_unless_another_type_is_asked_for() -> None:
    assert frozen_type(TrainingSettings(adapter="qlora")) == "nf4"
    assert frozen_type(TrainingSettings(adapter="qlora", weights="nf4-double")) == "nf4-double"
    model = load_model(ModelSettings(name="gpt2"))
    lora = training_bill(model, TrainingSettings(adapter="lora", weights="nf4"))
    assert training_bill(model, TrainingSettings(adapter="qlora", prepare_kbit=False)) == lora


FMS = {
    "adapter": "qlora", "weights": "nf4-double", "checkpointing": "full", "sequence": 4096,
    "adapter_targets": "q_proj,k_proj,v_proj,o_proj",
}  # fmt: skip


def allocated(name: str, **settings: Any) -> float:
    training = TrainingSettings(**{**FMS, **settings})
    return training_bill(load_model(ModelSettings(name=name)), training).allocated_bytes / 2**30


@pytest.mark.parametrize(("micro_batch", "gibibytes"), [(4, 19.25), (8, 34.46)])
def test_a_4_bit_base_is_prepared_in_fp32_on_one_gpu(micro_batch: int, gibibytes: float) -> None:
    """Measured on an A100 by fms-acceleration: norms, embedding, head and residual are fp32."""
    found = allocated("mistral-7b-v0.1", micro_batch=micro_batch)
    assert found == pytest.approx(gibibytes, rel=0.05)
    one_type = {"gpus": 2, "sharding": "fsdp", "micro_batch": micro_batch}
    assert allocated("mistral-7b-v0.1", **one_type) == allocated(
        "mistral-7b-v0.1", prepare_kbit=False, **one_type
    )


def test_experts_are_quantized_where_transformers_has_a_module_for_each() -> None:
    how: dict[str, Any] = {"micro_batch": 4, "prepare_kbit": False}
    old, new, either = (
        allocated("mixtral-8x7b", transformers=version, **how) for version in ("4", "5", "auto")
    )
    assert old == pytest.approx(34.21, rel=0.05)  # measured by fms-acceleration
    assert either == new > old + 60
    prepared = allocated("mixtral-8x7b", transformers="4", micro_batch=4)
    assert prepared == pytest.approx(
        39.86, rel=0.05
    )  # the experts' products are autocast to 16 bit
