"""Korthikanti et al. 2022: shares of the tensor-parallel baseline that they publish."""

from __future__ import annotations

import pytest

from tokmill.bill.activations.amounts import summed
from tokmill.bill.activations.checkpoints import CHECKPOINTS
from tokmill.bill.activations.megatron import megatron_layer, megatron_outside
from tokmill.bill.formula import evaluate
from tokmill.settings.training import TrainingSettings


def of_gpt(heads: int, hidden: int) -> dict[str, float]:
    """Give the symbols of their GPT models: 2,048 tokens, 8 GPUs."""
    shape = {"a": heads, "k": heads, "h": hidden / heads, "d": hidden, "f": 4 * hidden}
    return {**shape, "s": 2048, "t": 8, "x": 2}


def percent(symbols: dict[str, float], **settings: object) -> float:
    def per_token(**changed: object) -> float:
        training = TrainingSettings(framework="megatron", attention="eager", **changed)  # type: ignore[arg-type]
        return evaluate(summed(megatron_layer(training, gated=False)), symbols)

    return 100 * per_token(**settings) / per_token()


MODELS = [(64, 6144), (96, 12288), (128, 20480), (160, 25600)]


@pytest.mark.parametrize(("shape", "published"), list(zip(MODELS, (67, 62, 58, 58), strict=True)))
def test_sequence_parallelism_keeps_the_published_share(
    shape: tuple[int, int], published: int
) -> None:
    assert percent(of_gpt(*shape), sequence_parallel=True) == pytest.approx(published, abs=1)


@pytest.mark.parametrize(("shape", "published"), list(zip(MODELS, (49, 57, 62, 62), strict=True)))
def test_selective_recomputation_keeps_the_published_share(
    shape: tuple[int, int], published: int
) -> None:
    assert percent(of_gpt(*shape), checkpointing="selective") == pytest.approx(published, abs=1)


@pytest.mark.parametrize(("shape", "published"), list(zip(MODELS, (16, 18, 20, 20), strict=True)))
def test_both_keep_the_published_share(shape: tuple[int, int], published: int) -> None:
    both = percent(of_gpt(*shape), checkpointing="selective", sequence_parallel=True)
    assert both == pytest.approx(published, abs=1)


@pytest.mark.parametrize(("shape", "published"), list(zip(MODELS, (8, 9, 10, 10), strict=True)))
def test_full_recomputation_keeps_the_published_share(
    shape: tuple[int, int], published: int
) -> None:
    symbols = of_gpt(*shape)
    baseline = TrainingSettings(framework="megatron", attention="eager")
    layer = evaluate(summed(megatron_layer(baseline, gated=False)), symbols)
    kept = evaluate(CHECKPOINTS.expression, {**symbols, "n": 1, "layers_kept": 1})
    assert 100 * kept / layer == pytest.approx(published, abs=1)


def test_a_layer_alone_keeps_34_d_and_5_a_s() -> None:
    symbols = {**of_gpt(16, 1024), "t": 1}
    training = TrainingSettings(framework="megatron", attention="eager")
    found = evaluate(summed(megatron_layer(training, gated=False)), symbols)
    assert found == 34 * 1024 + 5 * 16 * 2048


def test_a_gated_layer_keeps_two_more_widths() -> None:
    symbols = of_gpt(16, 1024)
    plain, gated = (
        evaluate(
            summed(megatron_layer(TrainingSettings(framework="megatron"), gated=gated)), symbols
        )
        for gated in (False, True)
    )
    assert gated - plain == 2 * 4096 / 8


def test_the_last_stage_keeps_the_inputs_of_norm_and_output_layer_too() -> None:
    symbols = of_gpt(16, 1024)
    training = TrainingSettings(framework="megatron")
    first, last = (
        evaluate(summed(megatron_outside(training, last=last)), symbols) for last in (False, True)
    )
    assert (first, last - first) == (8 + 1024, 4 * 1024)


def test_sequence_parallelism_splits_what_is_outside_the_layers() -> None:
    symbols = of_gpt(16, 1024)
    training = TrainingSettings(framework="megatron", sequence_parallel=True)
    assert evaluate(summed(megatron_outside(training, last=True)), symbols) == (8 + 5 * 1024) / 8
