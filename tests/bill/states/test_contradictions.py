from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.models.load import load_model
from tokmill.bill.states.contradictions import check_parallelism
from tokmill.errors import UsageError
from tokmill.settings.training import ModelSettings, TrainingSettings

SERVER = {"gpus": 64}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"gpus": 12, "tensor_parallel": 4, "pipeline_parallel": 2},
            r"gpus: expected a multiple of 8 \(tensor_parallel 4 x pipeline_parallel 2 x "
            r"context_parallel 1\), found 12",
        ),
        ({"gpus": 3, "tensor_parallel": 3}, "tensor_parallel: expected a divisor of the 32 heads"),
        (SERVER | {"sequence_parallel": True}, "sequence_parallel: needs tensor_parallel of 2"),
        (SERVER | {"virtual_stages": 2}, "virtual_stages: 2 chunks need pipeline_parallel"),
        (SERVER | {"pipeline_parallel": 64}, "expected at most the 32 layers, found 64"),
        (
            {"gpus": 5, "pipeline_parallel": 5, "framework": "megatron"},
            "pipeline_parallel: 5 stages of 1 chunks do not divide the 32 layers",
        ),
        (
            SERVER | {"pipeline_parallel": 4, "virtual_stages": 3},
            "4 stages of 3 chunks do not divide the 32 layers",
        ),
        (SERVER | {"pipeline_parallel": 4, "sharding": "zero-2"}, "zero-2 does not work with pipe"),
        (SERVER | {"expert_parallel": 8}, "the model has no experts to share among 8 GPUs"),
        (SERVER | {"context_parallel": 8, "sequence": 4100}, "multiple of 8, .*, found 4100"),
        (
            SERVER | {"tensor_parallel": 8, "sequence_parallel": True, "sequence": 4100},
            "sequence: expected a multiple of 8",
        ),
        ({"offload": "optimizer"}, "offload: optimizer needs sharding zero-1, .*, found ddp"),
        (
            {"offload": "all", "sharding": "distributed-optimizer"},
            "offload: weights need sharding zero-3 or fsdp",
        ),
        ({"optimizer": "adamw-fp8"}, "adamw-fp8 needs framework megatron and sharding distrib"),
        ({"offload": "optimizer", "sharding": "fsdp"}, "fsdp offloads weights and .*; choose all"),
        (
            {"optimizer_step": "backward", "accumulation": 2},
            "optimizer_step: backward needs accumulation 1, found 2",
        ),
        (
            {"optimizer_step": "backward", "gpus": 2, "sharding": "zero-3"},
            "optimizer_step: backward needs one GPU or sharding fsdp2, found zero-3",
        ),
        (
            {"optimizer_step": "backward", "sharding": "zero-2", "offload": "optimizer"},
            "optimizer_step: backward has no framework megatron and no offload",
        ),
        ({"weights": "nf4"}, "weights: nf4 is for weights that are not trained, but adapter is"),
    ],
)
def test_settings_that_contradict_each_other_or_a_dense_model_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    model = load_model(ModelSettings(name="llama-3-8b"))
    with pytest.raises(UsageError, match=message):
        check_parallelism(model, TrainingSettings(**settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gpus": 6, "expert_parallel": 6}, "expected a divisor of the 8 experts of a layer"),
        (
            {"gpus": 8, "tensor_parallel": 4, "expert_parallel": 4},
            r"divisor of the 2 groups of GPUs that hold the same layers .*, found 4",
        ),
    ],
)
def test_experts_that_cannot_be_shared_so_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    model = load_model(ModelSettings(name="mixtral-8x7b"))
    with pytest.raises(UsageError, match=message):
        check_parallelism(model, TrainingSettings(**settings))


@pytest.mark.parametrize(
    ("numbers", "tensor_parallel", "message"),
    [
        ({"heads": 12, "kv_heads": 6}, 4, "a divisor or a multiple of the 6 key-value heads"),
        ({"heads": 8, "ffn": 100}, 8, "a divisor of the ffn width 100, found 8"),
    ],
)
def test_widths_that_tensor_parallelism_cannot_split_are_refused(
    numbers: dict[str, int], tensor_parallel: int, message: str
) -> None:
    shape = {"layers": 2, "hidden": 96, "ffn": 256, "vocabulary": 1000}
    model = load_model(ModelSettings(family="llama", **(shape | numbers)))
    training = TrainingSettings(gpus=8, tensor_parallel=tensor_parallel)
    with pytest.raises(UsageError, match=message):
        check_parallelism(model, training)


def test_qlora_on_a_base_of_16_bit_is_refused() -> None:
    with pytest.raises(UsageError, match="found weights bf16; choose adapter lora"):
        check_parallelism(
            load_model(ModelSettings(name="gpt2")),
            TrainingSettings(adapter="qlora", weights="bf16"),
        )


MEGATRON = {"framework": "megatron", "gpus": 8, "sequence": 2048}


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ("llama-3-8b", {"adapter": "qlora"}, "adapter: qlora needs framework hf; choose lora"),
        ("llama-3-8b", {"adapter": "lora", "weights": "int8"}, "int8 needs framework hf; choose"),
        ("llama-3-8b", {"sharding": "zero-3"}, "zero-3 needs framework hf; expected ddp or dist"),
        ("llama-3-8b", {"precision": "amp"}, "Megatron-LM has no autocast, choose mixed-18"),
        ("t5-small", {}, "framework: megatron has no encoder-decoder formulas .t5.; choose hf"),
        ("llama-3-8b", {"optimizer": "adamw-8bit"}, "adamw-8bit needs framework hf; choose adamw"),
        ("llama-3-8b", {"attention": "sdpa-mask"}, "attention: sdpa-mask needs framework hf"),
        ("llama-3-8b", {"metric_batches": 4}, "metric_batches: expected 0 with framework megatron"),
        ("llama-3-8b", {"loss": "fused"}, "which framework megatron splits; choose full"),
        ("llama-3-8b", {"expert_tensor_parallel": 2}, "the model has no experts to split"),
        ("mixtral-8x7b", {"tensor_parallel": 2}, "only with it; add sequence_parallel"),
        ("mixtral-8x7b", {"expert_tensor_parallel": 3}, "divisor of the expert width 14336"),
        (
            "mixtral-8x7b",
            {"framework": "hf", "expert_tensor_parallel": 2},
            "only Megatron splits experts by another number",
        ),
    ],
)
def test_what_megatron_has_not_is_refused(
    model: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        check_parallelism(
            load_model(ModelSettings(name=model)), TrainingSettings(**MEGATRON | settings)
        )
