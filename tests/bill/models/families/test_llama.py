"""Llama and its kin: the published formulas of their parameters, biases, norms and windows."""

from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.models.load import model_from_config
from tokmill.bill.models.model import Model

L, D, A, K, H, F, V = 4, 12, 4, 2, 5, 20, 50
LAYER = D * A * H + 2 * D * K * H + A * H * D + 3 * D * F + 2 * D
LLAMA = L * LAYER + D + 2 * V * D


def model(kind: str, **config: Any) -> Model:
    sizes = {
        "num_hidden_layers": L, "hidden_size": D, "num_attention_heads": A, "vocab_size": V,
        "num_key_value_heads": K, "head_dim": H, "intermediate_size": F,
    }  # fmt: skip
    return model_from_config({"model_type": kind, **sizes, **config})


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("llama", LLAMA),
        ("mistral", LLAMA),
        ("phi3", LLAMA),
        ("qwen2", LLAMA + L * (A * H + 2 * K * H)),
        ("qwen3", LLAMA + L * 2 * H),
        ("olmo2", LLAMA + L * (A * H + K * H)),
        ("gemma", LLAMA - V * D),
        ("gemma2", LLAMA - V * D + L * 2 * D),
        ("gemma3_text", LLAMA - V * D + L * (2 * D + 2 * H)),
    ],
)
def test_parameters_are_those_of_the_formula(kind: str, expected: int) -> None:
    assert model(kind).parameters == expected


def test_biases_of_llama_follow_the_configuration() -> None:
    biased = model("llama", attention_bias=True, mlp_bias=True)

    assert biased.parameters == LLAMA + L * (A * H + 2 * K * H + D + 2 * F + D)
    splits = {t.name.split(".")[-2]: t.split for t in biased.tensors if t.name.endswith("bias")}
    assert splits == {
        "q_proj": "columns", "k_proj": "columns", "v_proj": "columns", "o_proj": "none",
        "gate_proj": "columns", "up_proj": "columns", "down_proj": "none",
    }  # fmt: skip


def test_a_tied_head_is_counted_once() -> None:
    assert model("llama", tie_word_embeddings=True).parameters == LLAMA - V * D


@pytest.mark.parametrize(
    ("kind", "config", "windows"),
    [
        ("llama", {}, ()),
        ("mistral", {}, (4096,) * 4),
        ("mistral", {"sliding_window": None}, ()),
        ("phi3", {"sliding_window": 7}, (7,) * 4),
        ("qwen2", {"sliding_window": 7}, ()),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 3}, (0, 0, 0, 4096)),
        ("gemma2", {"sliding_window": 7}, (7, 0, 7, 0)),
        ("gemma3_text", {"sliding_window": 7, "sliding_window_pattern": 2}, (7, 0, 7, 0)),
        ("gemma3_text", {"sliding_window": 7}, (7, 7, 7, 7)),
    ],
)
def test_windows_are_those_of_the_layers(
    kind: str, config: dict[str, Any], windows: tuple[int, ...]
) -> None:
    assert model(kind, **config).attention.windows == windows


def test_gemma_keeps_the_scale_of_its_embedding_and_gemma_3_two_kinds_of_positions() -> None:
    rotary = 2 * 4 * 3

    assert model("llama").buffer_bytes == rotary
    assert model("gemma").buffer_bytes == rotary + 4
    assert model("gemma3_text", sliding_window_pattern=2).buffer_bytes == 2 * rotary + 4
