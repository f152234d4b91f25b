"""Korthikanti et al. 2022: shares of the tensor-parallel baseline that they publish."""

from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.activations.layers import CHECKPOINTS
from tokmill.bill.activations.megatron import megatron_parts
from tokmill.bill.activations.part import summed
from tokmill.bill.activations.situation import activation_symbols, situation
from tokmill.bill.formula import evaluate
from tokmill.bill.models.load import model_from_config
from tokmill.bill.models.model import Model
from tokmill.settings.training import TrainingSettings


def gpt(heads: int, hidden: int) -> Model:
    """Return one of their GPT models."""
    return model_from_config(
        {"model_type": "gpt2", "n_layer": 2, "n_embd": hidden, "n_head": heads, "vocab_size": 51200}
    )


def trained(**changed: Any) -> TrainingSettings:
    defaults = {"framework": "megatron", "precision": "mixed-18", "sequence": 2048, "gpus": 8}
    return TrainingSettings(**defaults | changed)


def kept(model: Model, part: str = "", **settings: Any) -> float:
    """Return the bytes of a token in all parts of a layer, or in one."""
    training = trained(**settings)
    at = situation(model, training)
    symbols = activation_symbols(model, training, at)
    found = [p for p in megatron_parts(at, training) if part in ("", p.name)]
    return sum(evaluate(summed(p.saved), symbols) for p in found)


def percent(model: Model, **settings: Any) -> float:
    eager = {"attention": "eager", "tensor_parallel": 8}
    return 100 * kept(model, **eager, **settings) / kept(model, **eager)


MODELS = [(64, 6144), (96, 12288), (128, 20480), (160, 25600)]


@pytest.mark.parametrize(("shape", "published"), list(zip(MODELS, (67, 62, 58, 58), strict=True)))
def test_sequence_parallelism_keeps_the_published_share(
    shape: tuple[int, int], published: int
) -> None:
    assert percent(gpt(*shape), sequence_parallel=True) == pytest.approx(published, abs=1)


@pytest.mark.parametrize(("shape", "published"), list(zip(MODELS, (8, 9, 10, 10), strict=True)))
def test_full_recomputation_keeps_the_published_share(
    shape: tuple[int, int], published: int
) -> None:
    model = gpt(*shape)
    symbols = {"n": 1, "layers_kept": 1, "x": 2, "d": model.hidden, "u": 1}
    inputs = evaluate(CHECKPOINTS.expression, symbols)
    layer = kept(model, attention="eager", tensor_parallel=8)
    assert 100 * inputs / layer == pytest.approx(published, abs=1)
