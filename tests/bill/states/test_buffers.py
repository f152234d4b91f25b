from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.formula import Line
from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Model
from tokmill.bill.states.buffers import bucket_line, gathered_line
from tokmill.bill.states.parallel import RankTensor, rank_tensors
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

LLAMA = 6_738_415_616
ENDS = 2 * 32_000 * 4096 + 4096
LAYER = (LLAMA - ENDS) // 32


def named(name: str) -> Model:
    return load_model(ModelSettings(name=name))


def of_llama(**settings: Any) -> tuple[tuple[RankTensor, ...], TrainingSettings]:
    training = TrainingSettings(**settings)
    return rank_tensors(named("llama-2-7b"), training), training


def bytes_of(line: Line | None) -> tuple[int, int, int]:
    assert line
    return line.low_bytes, line.n_bytes, line.high_bytes


def test_fsdp_gathers_two_layers_and_what_is_outside() -> None:
    low, n_bytes, high = bytes_of(gathered_line(*of_llama(gpus=8, sharding="fsdp")))
    assert (low, n_bytes, high) == (4 * LAYER, 4 * LAYER + 2 * ENDS, 4 * LAYER + 2 * ENDS)
    held = of_llama(gpus=8, sharding="fsdp", precision="fp32")
    assert bytes_of(gathered_line(*held))[0] == 8 * LAYER


def test_fsdp2_gathers_two_layers_or_the_head() -> None:
    held = of_llama(gpus=8, sharding="fsdp2")
    most = bytes_of(gathered_line(*of_llama(gpus=8, sharding="fsdp")))[2]
    assert bytes_of(gathered_line(*held)) == (4 * LAYER, 4 * LAYER, most)
    assert bytes_of(gathered_line(*held, units=1)) == (2 * LAYER, 2 * LAYER, most - 2 * LAYER)
    head = 2 * 32_000 * 4096
    assert bytes_of(gathered_line(*held, units=0)) == (head, head, 2 * ENDS)


def test_fsdp1_has_all_outside_the_layers_gathered_beside_the_head() -> None:
    held = of_llama(gpus=8, sharding="fsdp")
    assert bytes_of(gathered_line(*held, units=0)) == (2 * 32_000 * 4096, 2 * ENDS, 2 * ENDS)


def test_quantized_weights_are_gathered_as_stored_and_one_matrix_is_dequantized() -> None:
    low, _, _ = bytes_of(gathered_line(*of_llama(gpus=8, sharding="fsdp", adapter="qlora")))
    packed, norms, matrix = 0.5625 * (LAYER - 2 * 4096), 4 * 4096, 2 * 4096 * 11_008
    adapters = 16 * (7 * 4096 + 4096 + 3 * 11_008 + 3 * 4096)
    assert low == pytest.approx(2 * (packed + norms + 2 * adapters) + matrix, rel=0.01)


def test_zero_3_keeps_a_billion_parameters_gathered_or_the_largest_module_alone() -> None:
    low, n_bytes, high = bytes_of(gathered_line(*of_llama(gpus=8, sharding="zero-3")))
    assert (low, n_bytes) == (4 * 32_000 * 4096, 2 * 10**9)
    assert high == 2 * (1_050_000_000 + 32_000 * 4096)


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
