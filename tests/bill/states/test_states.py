"""Published figures of what training keeps and saves, and every rule of who holds what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tokmill.bill.formula import Line
from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Attention, Model, Tensor
from tokmill.bill.states.buffers import bucket_line, gathered_line
from tokmill.bill.states.parallel import RankTensor, rank_tensors
from tokmill.bill.states.states import GRADIENTS, UNSHARED, States, checkpoint_bill, rank_states
from tokmill.bill.training_bill import training_bill
from tokmill.settings.training import ModelSettings, TrainingSettings

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


ZERO_TABLE_1 = [
    (7.5e9, 4, (52.5, 41.25, 30)),
    (7.5e9, 64, (31.41, 16.64, 1.88)),
    (128e9, 4, (896, 704, 512)),
    (128e9, 1024, (513.5, 257.75, 2)),
    (1e12, 4, (7000, 5500, 4000)),
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


def test_offloaded_lora_is_16_bytes_of_what_is_trained_and_2_of_all() -> None:
    settings = {"sharding": "zero-3", "offload": "all", "precision": "mixed-16"}
    held = states("llama-2-7b", gpus=8, adapter="lora", **settings)
    trained = 39_976_960
    assert offloaded(held) == (16 * trained, 2 * (6_738_415_616 + trained))


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


def test_context_parallel_ranks_share_states_and_tensor_parallel_ones_hold_a_part() -> None:
    settings = {"sharding": "zero-1", "precision": "mixed-16"}
    held = states(of_size(1000), gpus=4, context_parallel=4, **settings)
    assert optimizer(held) == 12 * 250


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


LLAMA = 6_738_415_616
ENDS = 2 * 32_000 * 4096 + 4096
LAYER = (LLAMA - ENDS) // 32


def known(name: str) -> Model:
    return load_model(ModelSettings(name=name))


def of_llama(**settings: Any) -> tuple[tuple[RankTensor, ...], TrainingSettings]:
    training = TrainingSettings(**settings)
    return rank_tensors(known("llama-2-7b"), training), training


def bytes_of(line: Line | None) -> tuple[int, int, int]:
    assert line
    return line.low_bytes, line.n_bytes, line.high_bytes


def test_fsdp_gathers_two_layers_and_what_is_outside() -> None:
    low, n_bytes, high = bytes_of(gathered_line(*of_llama(gpus=8, sharding="fsdp")))
    assert (low, n_bytes, high) == (4 * LAYER, 4 * LAYER + 2 * ENDS, 4 * LAYER + 2 * ENDS)
    held = of_llama(gpus=8, sharding="fsdp", precision="fp32")
    assert bytes_of(gathered_line(*held))[0] == 8 * LAYER


def test_quantized_weights_are_gathered_as_stored_and_one_matrix_is_dequantized() -> None:
    low, _, _ = bytes_of(gathered_line(*of_llama(gpus=8, sharding="fsdp", adapter="qlora")))
    packed, norms, matrix = 0.5625 * (LAYER - 2 * 4096), 4 * 4096, 2 * 4096 * 11_008
    adapters = 16 * (7 * 4096 + 4096 + 3 * 11_008 + 3 * 4096)
    assert low == pytest.approx(2 * (packed + norms + 2 * adapters) + matrix, rel=0.01)


@pytest.mark.parametrize(
    ("sharding", "elements"), [("zero-1", 10**9), ("zero-2", 10**9), ("zero-3", 550_000_000)]
)
def test_deepspeed_has_buckets_of_half_a_billion_elements(sharding: str, elements: int) -> None:
    held = of_llama(gpus=8, sharding=sharding, precision="mixed-16")
    assert bytes_of(bucket_line(*held)) == (0, 2 * elements, 9 * elements)
    held = of_llama(gpus=8, sharding=sharding, precision="fp32")
    assert bytes_of(bucket_line(*held))[1] == 4 * elements


P = 124_439_808


@pytest.fixture(scope="module")
def gpt2() -> Model:
    return load_model(ModelSettings(name="gpt2"))


@pytest.mark.parametrize(
    ("precision", "optimizer", "weights", "states"),
    [
        ("mixed-16", "adamw", 2, 12),
        ("mixed-20", "adamw", 2, 12),
        ("fp32", "adamw", 4, 8),
        ("amp", "momentum", 4, 4),
        ("pure-16", "adamw", 2, 4),
        ("fp32", "sgd", 4, 0),
    ],
)
def test_a_checkpoint_holds_weights_master_copy_and_moments_and_no_gradient(
    gpt2, precision, optimizer, weights, states
):
    training = TrainingSettings(precision=precision, optimizer=optimizer, checkpoints=0)
    saved = [line.n_bytes for line in checkpoint_bill(gpt2, training).lines]
    assert (saved[0], sum(saved[1:])) == (weights * P, states * P)


def test_an_adapter_is_saved_without_its_base(gpt2):
    training = TrainingSettings(
        adapter="lora", adapter_rank=8, adapter_targets="c_attn", checkpoints=0
    )
    trained = 12 * 8 * (768 + 3 * 768)
    saved = [line.n_bytes for line in checkpoint_bill(gpt2, training).lines]
    assert saved == [4 * trained, 4 * trained, 4 * trained]


def megatron(**settings: Any) -> TrainingSettings:
    split = settings.get("tensor_parallel", 1) > 1
    defaults = {"framework": "megatron", "sharding": "distributed-optimizer"}
    return TrainingSettings(**defaults | {"sequence_parallel": split} | settings)


def footprint(model: Model, training: TrainingSettings) -> float:
    """Return weights, gradients and optimizer states by Megatron-LM's theoretical_memory_usage.py.

    Split by tensor parallelism: attention, dense and shared feed-forward layers, embeddings.
    Repeated: norms and routers (and MLA's are counted as split there). Split by ETP x EP: experts.
    """
    t, p = training.tensor_parallel, training.pipeline_parallel
    etp, ep = training.expert_tensor_parallel or t, training.expert_parallel
    modules = model.by_module()
    split = (modules["attention"] + modules.get("mlp", 0)) / p + modules["embedding"]
    split += modules["head"] if p == 1 else 0
    norms = modules["norm"] - model.hidden * (p > 1)
    latent = model.attention.kv_rank + model.attention.q_rank if model.attention.kv_rank else 0
    dense = (split + latent * model.layers) / t + (norms - latent * model.layers) / p
    dense += modules["router"] / p
    experts = modules["experts"] / p / (etp * ep)
    return dense * (6 + 12 / (training.gpus / t / p)) + experts * (
        6 + 12 / (training.gpus / (etp * ep * p))
    )


@pytest.mark.parametrize(
    "layout",
    [
        {"gpus": 8, "expert_parallel": 8},
        {"gpus": 16, "tensor_parallel": 2, "expert_parallel": 4, "expert_tensor_parallel": 1},
        {"gpus": 16, "tensor_parallel": 4, "expert_parallel": 2, "expert_tensor_parallel": 2},
        {"gpus": 16, "tensor_parallel": 2, "expert_parallel": 2, "expert_tensor_parallel": 4},
        {"gpus": 64, "tensor_parallel": 2, "pipeline_parallel": 4, "expert_parallel": 8,
         "expert_tensor_parallel": 1},
    ],
)  # fmt: skip
def test_states_of_mixtral_equal_megatrons_own_arithmetic(layout: dict[str, int]) -> None:
    model, training = known("mixtral-8x7b"), megatron(**layout)
    assert rank_states(model, training, 0).n_bytes == pytest.approx(
        footprint(model, training), rel=1e-6
    )


@pytest.mark.parametrize(
    "layout",
    [
        {"gpus": 64, "expert_parallel": 64},
        {"gpus": 64, "tensor_parallel": 4, "expert_parallel": 64, "expert_tensor_parallel": 1},
    ],
)
def test_states_of_deepseek_v3_nearly_equal_megatrons_own_arithmetic(
    layout: dict[str, int],
) -> None:
    """Its compressions, 1% of attention, stand on every rank; Megatron's formula splits them."""
    model, training = known("deepseek-v3"), megatron(**layout)
    found, expected = rank_states(model, training).n_bytes, footprint(model, training)
    alone = training.tensor_parallel == 1
    assert found == pytest.approx(expected, rel=1e-6 if alone else 0.05)
    assert found >= expected * (1 - 1e-6)


@pytest.mark.parametrize("sharding", ["fsdp", "fsdp2"])
@pytest.mark.parametrize(
    ("changes", "per_parameter"),
    [
        ({}, 0),
        ({"accumulation": 4}, 2),
        ({"accumulation": 4, "precision": "fp32"}, 4),
        ({"accumulation": 4, "gpus": 1}, 0),
        ({"accumulation": 4, "trainer": "torchtune"}, 0),
    ],
)
def test_fsdp_shares_the_gradients_of_several_micro_batches_at_the_step(
    sharding: str, changes: dict[str, Any], per_parameter: int
) -> None:
    model = named("gpt2")
    settings: dict[str, Any] = {"sharding": sharding, "gpus": 8} | changes
    unshared = states(model, **settings).unshared
    held = unshared.n_bytes if unshared else 0
    assert held == per_parameter * model.parameters
    moments = training_bill(model, TrainingSettings(**settings)).stages[0].moments
    backward, step = (
        next(moment for moment in moments if moment.title.endswith(title))
        for title in ("end of backward", "optimizer's step")
    )
    assert sum(line.n_bytes for line in backward.lines if line.name == UNSHARED.name) == held
    assert not [line for line in step.lines if line.name == UNSHARED.name]


@pytest.mark.parametrize("settings", [{}, {"gpus": 4, "sharding": "fsdp2"}])
def test_a_step_in_the_backward_pass_leaves_no_gradients(settings: dict[str, Any]) -> None:
    model = named("llama-3.2-1b")

    def moments(step: str) -> dict[str, int]:
        how = TrainingSettings(precision="pure-16", optimizer_step=step, sequence=256, **settings)
        stage = training_bill(model, how).stages[0]
        return {
            moment.title.rpartition(": ")[2]: sum(
                line.n_bytes for line in moment.lines if line.name == GRADIENTS.name
            )
            for moment in stage.moments
        }

    fused, backward = moments("fused"), moments("backward")
    assert fused.keys() == backward.keys()
    assert fused["optimizer's step"] == 2 * model.parameters // settings.get("gpus", 1)
    assert set(backward.values()) == {0}
