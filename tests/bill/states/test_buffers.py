from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.formula import Line
from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Model
from tokmill.bill.states.buffers import bucket_line, cast_line, gathered_line, streams_line
from tokmill.bill.states.parallel import RankTensor, rank_tensors
from tokmill.bill.states.weights import gradients_line
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

LLAMA = 6_738_415_616
ENDS = 2 * 32_000 * 4096 + 4096
LAYER = (LLAMA - ENDS) // 32
LINEAR = 32 * (4 * 4096**2 + 3 * 4096 * 11_008)


def named(name: str) -> Model:
    return load_model(ModelSettings(name=name))


def of_llama(**settings: Any) -> tuple[tuple[RankTensor, ...], TrainingSettings]:
    training = TrainingSettings(**settings)
    return rank_tensors(named("llama-2-7b"), training), training


def casts(name: str, **settings: Any) -> int | None:
    model, training = named(name), TrainingSettings(**settings)
    line = cast_line(model, rank_tensors(model, training), training)
    return line and line.n_bytes


def bytes_of(line: Line | None) -> tuple[int, int, int]:
    assert line
    return line.low_bytes, line.n_bytes, line.high_bytes


def test_autocast_casts_matrices_and_an_untied_head() -> None:
    assert casts("llama-2-7b") == 2 * (LINEAR + 32_000 * 4096)


def test_autocast_casts_biases_and_a_tied_table_of_ids_but_no_positions_and_norms() -> None:
    norms_and_positions = 25 * 2 * 768 + 1024 * 768
    assert casts("gpt2") == 2 * (124_439_808 - norms_and_positions)


def test_a_first_stage_has_no_head_to_cast_its_table_for() -> None:
    layer = 12 * 768**2 + 2304 + 768 + 3072 + 768
    assert casts("gpt2", gpus=2, pipeline_parallel=2) == 2 * 6 * layer


@pytest.mark.parametrize(
    "settings",
    [{"precision": "fp32"}, {"precision": "pure-16"}, {"gpus": 2, "sharding": "fsdp"}],
)
def test_without_autocast_or_with_gathered_weights_there_are_no_casts(
    settings: dict[str, Any],
) -> None:
    assert casts("gpt2", **settings) is None


def test_of_a_16_bit_base_only_the_adapters_are_cast() -> None:
    lora = {"adapter": "lora", "adapter_targets": "q_proj,v_proj", "adapter_rank": 8}
    assert casts("llama-2-7b", **lora) == 2 * 4_194_304
    assert casts("llama-2-7b", weights="fp32", **lora) == 2 * (LINEAR + 32_000 * 4096 + 4_194_304)


def test_weights_of_one_gpu_are_never_gathered() -> None:
    assert gathered_line(*of_llama()) is None
    assert gathered_line(*of_llama(gpus=8, sharding="zero-2")) is None


def test_fsdp_gathers_two_layers_and_what_is_outside() -> None:
    low, n_bytes, high = bytes_of(gathered_line(*of_llama(gpus=8, sharding="fsdp")))
    assert (low, n_bytes, high) == (4 * LAYER, 4 * LAYER + 2 * ENDS, 4 * LAYER + 2 * ENDS)
    held = of_llama(gpus=8, sharding="fsdp", precision="fp32")
    assert bytes_of(gathered_line(*held))[0] == 8 * LAYER


def test_zero_3_keeps_a_billion_parameters_gathered_or_the_largest_module_alone() -> None:
    low, n_bytes, high = bytes_of(gathered_line(*of_llama(gpus=8, sharding="zero-3")))
    assert (low, n_bytes) == (4 * 32_000 * 4096, 2 * 10**9)
    assert high == 2 * (1_050_000_000 + 32_000 * 4096)


def test_buckets_and_gathered_weights_are_no_larger_than_a_small_model() -> None:
    training = TrainingSettings(gpus=8, sharding="zero-3", precision="mixed-16")
    held = rank_tensors(named("gpt2"), training)
    assert bytes_of(gathered_line(held, training))[2] == 2 * (124_439_808 + 50_257 * 768)
    training = TrainingSettings(gpus=8, sharding="zero-2", precision="mixed-16")
    assert bytes_of(bucket_line(held, training))[1] == 2 * (500_000_000 + 124_439_808)


def test_a_quantized_matrix_is_dequantized_alone() -> None:
    line = gathered_line(*of_llama(adapter="lora", weights="nf4"))
    assert bytes_of(line)[1] == 2 * 4096 * 11_008


def test_one_gpu_has_no_buckets() -> None:
    held, training = of_llama()
    assert bucket_line(held, training) is None


def test_ddp_copies_gradients_unless_they_are_views() -> None:
    assert bytes_of(bucket_line(*of_llama(gpus=2))) == (0, 4 * LLAMA, 4 * LLAMA)


@pytest.mark.parametrize(
    "settings", [{"framework": "megatron"}, {"sharding": "distributed-optimizer"}]
)
def test_gradients_of_megatron_lie_in_its_buckets(settings: dict[str, Any]) -> None:
    assert bucket_line(*of_llama(gpus=2, **settings)) is None


@pytest.mark.parametrize(
    ("sharding", "elements"), [("zero-1", 10**9), ("zero-2", 10**9), ("zero-3", 550_000_000)]
)
def test_deepspeed_has_buckets_of_half_a_billion_elements(sharding: str, elements: int) -> None:
    held = of_llama(gpus=8, sharding=sharding, precision="mixed-16")
    assert bytes_of(bucket_line(*held)) == (0, 2 * elements, 9 * elements)
    held = of_llama(gpus=8, sharding=sharding, precision="fp32")
    assert bytes_of(bucket_line(*held))[1] == 4 * elements


def test_fsdp_reduces_the_gradients_of_a_layer_in_fp32() -> None:
    line = bucket_line(*of_llama(gpus=8, sharding="fsdp"))
    assert bytes_of(line) == (4 * LAYER, 4 * LAYER, 4 * (LAYER + ENDS))


def test_weights_that_stay_gathered_after_forward_have_no_buckets_of_deepspeed() -> None:
    held = of_llama(gpus=8, sharding="fsdp-grad-op")
    assert bytes_of(gathered_line(*held))[1] == 2 * LLAMA
    assert bytes_of(bucket_line(*held))[1] == 4 * LAYER


def test_memory_of_fsdps_streams_is_what_gradients_do_not_use_yet() -> None:
    held, training = of_llama(gpus=8, sharding="fsdp")
    gradients = gradients_line(held, training)
    start = bytes_of(streams_line(held, training, gradients, 0))
    end = bytes_of(streams_line(held, training, gradients, gradients.n_bytes))
    assert start == (0, 4 * LLAMA // 8 + 2 * ENDS, 4 * LLAMA // 8 + 2 * ENDS)
    assert end[1] == 2 * ENDS
    assert streams_line(*of_llama(gpus=8, sharding="zero-3"), gradients, 0) is None
    assert streams_line(*of_llama(sharding="fsdp"), gradients, 0) is None
