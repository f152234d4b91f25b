"""Published figures of what training keeps, and every rule of who holds what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Attention, Model, Tensor
from tokmill.bill.states.states import States, rank_states
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

GIB = 1 << 30


def of_size(elements: int, largest: int = 0) -> Model:
    """Make a model of that many elements in modules that are equal, but for the last."""
    copies, rest = divmod(elements, largest or elements)
    size = (elements - rest) // copies
    common = ("mlp", "linear", "none", 1, 1)
    tensors = (
        Tensor("layers.{}.weight", (1, size), *common, layers=tuple(range(copies))),
        *([Tensor("last.weight", (1, rest), *common)] if rest else []),
    )
    return Model("", "plain", copies, 1, 1, 1, 0, False, "", Attention(1, 1, 1), tensors)


def named(name: str) -> Model:
    """Give a known model without its buffers, some hundred bytes of rotary frequencies."""
    return replace(load_model(ModelSettings(name=name)), buffer_bytes=0)


def states(model: Model | str, **settings: Any) -> States:
    held = named(model) if isinstance(model, str) else model
    return rank_states(held, TrainingSettings(**settings))


def optimizer(held: States) -> int:
    return sum(line.n_bytes for line in held.optimizer)


def offloaded(held: States) -> tuple[int, int]:
    """Return the offloaded optimizer states and gradients, and the offloaded weights."""
    *others, weights = (line.n_bytes for line in held.host)
    return sum(others), weights


@pytest.mark.parametrize(
    ("sharding", "gigabytes"), [("ddp", 120), ("zero-1", 31.4), ("zero-2", 16.6), ("zero-3", 1.9)]
)
def test_zero_figure_1(sharding: str, gigabytes: float) -> None:
    held = states(of_size(7_500_000_000), gpus=64, sharding=sharding, precision="mixed-16")
    assert abs(held.n_bytes / 1e9 - gigabytes) < 0.05


ZERO_TABLE_1 = [
    (7.5e9, 4, (52.5, 41.25, 30)),
    (7.5e9, 16, (35.62, 21.56, 7.5)),
    (7.5e9, 64, (31.41, 16.64, 1.88)),
    (7.5e9, 256, (30.35, 15.41, 0.47)),
    (7.5e9, 1024, (30.09, 15.1, 0.12)),
    (128e9, 4, (896, 704, 512)),
    (128e9, 16, (608, 368, 128)),
    (128e9, 64, (536, 284, 32)),
    (128e9, 256, (518, 263, 8)),
    (128e9, 1024, (513.5, 257.75, 2)),
    (1e12, 4, (7000, 5500, 4000)),
    (1e12, 16, (4750, 2875, 1000)),
    (1e12, 64, (4187.5, 2218.75, 250)),
    (1e12, 256, (4046.9, 2054.7, 62.5)),
    (1e12, 1024, (4011.7, 2013.7, 15.6)),
]


@pytest.mark.parametrize(("elements", "gpus", "gigabytes"), ZERO_TABLE_1)
def test_zero_table_1(elements: float, gpus: int, gigabytes: tuple[float, ...]) -> None:
    for sharding, expected in zip(("zero-1", "zero-2", "zero-3"), gigabytes, strict=True):
        model = of_size(int(elements))
        held = states(model, gpus=gpus, sharding=sharding, precision="mixed-16")
        assert abs(held.n_bytes / 1e9 - expected) < 0.05


@pytest.mark.parametrize(
    ("settings", "gpu", "host"),
    [
        ({"sharding": "zero-3", "precision": "mixed-18"}, 6.09, None),
        ({"sharding": "zero-3", "precision": "mixed-18", "offload": "optimizer"}, 0.78, 63.72),
        ({"sharding": "zero-3", "precision": "mixed-18", "offload": "all"}, 0.12, 71.69),
        ({"sharding": "zero-2", "precision": "mixed-20"}, 11.28, None),
        ({"sharding": "zero-1", "precision": "mixed-20"}, 15.93, None),
    ],
)
def test_deepspeeds_estimates_of_t5_3b_on_8_gpus(
    settings: dict[str, str], gpu: float, host: float | None
) -> None:
    """Its code counts 2P + 18P/N for ZeRO-2; its page 4P + 16P/N, which is ZeRO-1's."""
    held = states(of_size(2_851_000_000, largest=32_000_000), gpus=8, **settings)
    gathered = held.gathered.low_bytes if held.gathered else 0
    assert abs((held.n_bytes + gathered) / GIB - gpu) < 0.01
    if host:
        assert abs(sum(line.high_bytes for line in held.host) / GIB - host) < 0.01


def test_zero_2_with_offload_keeps_16_bit_weights_alone() -> None:
    model = of_size(2_851_000_000)
    held = states(model, gpus=8, sharding="zero-2", offload="optimizer", precision="mixed-16")
    assert held.n_bytes == 2 * 2_851_000_000
    assert [(line.name, line.n_bytes // 2_851_000_000) for line in held.host] == [
        ("offloaded: fp32 copy of the weights", 4),
        ("offloaded: gradients", 4),
        ("offloaded: first moment", 4),
        ("offloaded: second moment", 4),
    ]
    assert held.step_temporary.n_bytes == 0


def test_zero_1_with_offload_keeps_its_gradients() -> None:
    model = of_size(1000)
    held = states(model, gpus=2, sharding="zero-1", offload="optimizer", precision="mixed-16")
    assert held.n_bytes == 4 * 1000


def test_a_machine_holds_the_offloaded_shards_of_its_own_ranks() -> None:
    model = of_size(1_000_000)
    settings = {"sharding": "zero-3", "offload": "all", "precision": "mixed-16"}
    held = states(model, gpus=32, gpus_per_node=8, **settings)
    assert offloaded(held) == (16 * 250_000, 2 * 250_000)


def test_fsdp_offloads_what_its_scheme_has() -> None:
    held = states(of_size(1000), gpus=2, sharding="fsdp", offload="all", precision="amp")
    assert offloaded(held) == (12 * 1000, 4 * 1000)
    assert held.n_bytes == 0


def test_offloaded_lora_is_16_bytes_of_what_is_trained_and_2_of_all() -> None:
    settings = {"sharding": "zero-3", "offload": "all", "precision": "mixed-16"}
    held = states("llama-2-7b", gpus=8, adapter="lora", **settings)
    trained = 39_976_960
    assert offloaded(held) == (16 * trained, 2 * (6_738_415_616 + trained))


@pytest.mark.parametrize(
    ("precision", "whole", "shared"), [("mixed-18", 6, 12), ("mixed-20", 4, 16), ("fp32", 8, 8)]
)
def test_megatrons_distributed_optimizer_shares_copies_and_moments(
    precision: str, whole: int, shared: int
) -> None:
    settings = {"sharding": "distributed-optimizer", "precision": precision}
    held = states(of_size(1_000_000), gpus=8, **settings)
    assert held.n_bytes == 1_000_000 * (whole + shared / 8)


def test_experts_are_shared_by_the_ranks_that_hold_the_same_ones() -> None:
    settings = {"sharding": "distributed-optimizer", "precision": "mixed-18"}
    held = states("mixtral-8x7b", gpus=16, expert_parallel=8, **settings)
    experts = 32 * 8 * 3 * 4096 * 14_336
    rest = 46_702_792_704 - experts
    assert held.parameters == rest + experts // 8
    assert held.weights.n_bytes == 2 * (rest + experts // 8)
    assert held.gradients.n_bytes == 4 * (rest + experts // 8)
    # An eighth of the experts, and half of that: the two ranks that hold it.
    assert optimizer(held) == 12 * (rest // 16 + experts // 8 // 2)


@pytest.mark.parametrize(("precision", "gibibytes"), [("mixed-16", 14.02), ("mixed-18", 15.78)])
def test_what_fsdp_saves_from_8_to_128_gpus_is_near_torchtitans_15_gib(
    precision: str, gibibytes: float
) -> None:
    """Measured there: 15.4 GiB, and 15.0 compiled."""
    few, many = (
        states("llama-3-8b", gpus=gpus, sharding="fsdp", precision=precision) for gpus in (8, 128)
    )
    saved = (few.n_bytes - many.n_bytes) / GIB
    assert round(saved, 2) == gibibytes
    assert abs(saved / 15.4 - 1) < 0.15


@pytest.mark.parametrize(("weights", "gigabytes"), [("nf4", 4.168), ("nf4-double", 3.866)])
def test_the_4_bit_base_of_llama_2_7b(weights: str, gigabytes: float) -> None:
    held = states("llama-2-7b", adapter="lora", weights=weights)
    base = held.weights.n_bytes - 4 * held.trainable
    assert round(base / 1e9, 3) == gigabytes
    # At most embedding, head and norms become fp32.
    assert held.weights.high_bytes - held.weights.n_bytes == 2 * (2 * 32_000 * 4096 + 65 * 4096)


def test_qlora_of_llama_65b_fits_48_gb_and_its_16_bit_tuning_is_780_gb() -> None:
    """780 GB are 12 B a parameter: 16-bit weights and gradients and fp32 moments, no fp32 copy."""
    quantized = states("llama-65b", adapter="lora", adapter_rank=64, weights="nf4-double")
    assert quantized.n_bytes < 48e9
    full = states(of_size(65_000_000_000), precision="mixed-16")
    copy = next(line for line in full.optimizer if line.name == "fp32 copy of the weights")
    assert full.n_bytes - copy.n_bytes == 780_000_000_000


@pytest.mark.parametrize(
    ("sharding", "sharded"),
    [("ddp", False), ("zero-1", False), ("zero-2", True), ("zero-3", True), ("fsdp", True)],
)
def test_gradients_are_given_away_from_zero_2_on(sharding: str, sharded: bool) -> None:
    held = states(of_size(1000), gpus=2, sharding=sharding, precision="fp32")
    assert held.gradients.n_bytes == (2000 if sharded else 4000)


def test_context_parallel_ranks_share_states_and_tensor_parallel_ones_hold_a_part() -> None:
    settings = {"sharding": "zero-1", "precision": "mixed-16"}
    held = states(of_size(1000), gpus=4, context_parallel=4, **settings)
    assert optimizer(held) == 12 * 250


def test_accumulating_in_16_bit_may_take_a_buffer_in_fp32() -> None:
    for precision, buffer in (("mixed-16", 4000), ("mixed-18", 0), ("pure-16", 0)):
        line = states(of_size(1000), accumulation=2, precision=precision).gradients
        assert line.high_bytes - line.n_bytes == buffer
    line = states(of_size(1000), accumulation=1, precision="mixed-16").gradients
    assert line.high_bytes == line.n_bytes


def test_what_an_adapter_leaves_of_a_mixture_is_said() -> None:
    product = "the product of adapters on stacked experts, as large as the experts of a layer"
    assert states("mixtral-8x7b", adapter="lora").leaves_out == (product,)
    assert states("mixtral-8x7b", adapter="qlora", adapter_targets="q_proj").leaves_out == (
        "quantized experts: stacked ones are counted in 16 bit",
    )
    quantized = states("mixtral-8x7b", adapter="lora", weights="nf4", adapter_targets="q_proj")
    assert quantized.leaves_out == ("quantized experts: stacked ones are counted in 16 bit",)
    assert states("mixtral-8x7b").leaves_out == ()


MEGATRON = {
    "framework": "megatron", "sharding": "distributed-optimizer", "precision": "mixed-18", "gpus": 4
}  # fmt: skip


@pytest.mark.parametrize(
    ("optimizer_name", "shared"),
    [("adamw", 4 + 4 + 4), ("adamw-bf16", 2 + 2 + 2), ("adamw-fp8", 2 + 1 + 1)],
)
def test_megatrons_precision_aware_optimizer_keeps_what_bf16_weights_lack(
    optimizer_name: str, shared: int
) -> None:
    held = states(of_size(8000), **MEGATRON, optimizer=optimizer_name)
    assert held.n_bytes == 8000 * (2 + 4 + shared / 4)


@pytest.mark.parametrize("optimizer_name", ["adamw", "adamw-bf16"])
def test_megatrons_optimizer_in_host_ram_leaves_weights_and_fp32_gradients(
    optimizer_name: str,
) -> None:
    how = {**MEGATRON, "gpus_per_node": 2, "offload": "optimizer", "optimizer": optimizer_name}
    held = states(of_size(8000), **how)
    assert held.n_bytes == 8000 * (2 + 4)
    assert sum(line.n_bytes for line in held.host) == 2 * 8000 * (4 + 4 + 8) / 4


def test_expert_parallel_ranks_share_the_adapters_of_experts() -> None:
    how = {"adapter": "lora", "adapter_targets": "gate_proj,up_proj,down_proj", "sequence": 2048}
    one, four = (
        states("qwen3-30b-a3b", **MEGATRON, **how, expert_parallel=n).trainable for n in (1, 4)
    )
    assert one == 4 * four
