"""Logits and loss: 12 n V at the start of backward, or a chunk, or a share."""

from __future__ import annotations

import pytest

from tokmill.bill.activations.loss import backward_line, forward_line, fused_chunk, loss_lines
from tokmill.settings.training import TrainingSettings

SYMBOLS = {"n": 100.0, "V": 1000.0, "d": 10.0, "q": 2.0, "q_loss": 4.0, "t": 4.0}
N_V = 100 * 1000


def amounts(symbols: dict[str, float], *, capped: bool = False, **settings: object) -> list[int]:
    """Give what is kept, what forward adds to it, and what backward adds to it."""
    training = TrainingSettings(**settings)  # type: ignore[arg-type]
    kept = sum(line.n_bytes for line in loss_lines(training, symbols, capped=capped))
    ahead, behind = forward_line(training, symbols), backward_line(training, symbols)
    return [kept, ahead.n_bytes, behind.n_bytes]


def test_a_fused_loss_takes_a_chunk_of_logits() -> None:
    chunk = 1  # 100 tokens in 100 chunks
    fused = 2 * chunk * 1000 + 2 * 100 * 10 + 2 * 2 * 1000 * 10
    assert amounts(SYMBOLS, loss="fused") == [0, fused, fused]


def test_a_fused_loss_of_a_frozen_head_has_no_gradient_of_it() -> None:
    frozen = 2 * 1 * 1000 + 2 * 100 * 10
    assert amounts(SYMBOLS, loss="fused", adapter="lora") == [0, frozen, frozen]


def test_a_loss_in_a_kernel_writes_gradients_over_the_fp32_logits() -> None:
    assert amounts(SYMBOLS, loss="kernel") == [0, 8 * N_V, 8 * N_V]


@pytest.mark.parametrize(
    ("tokens", "hidden", "vocabulary", "chunk"),
    [(8192, 4096, 128256, 256), (8192, 768, 50257, 128), (10, 4096, 128, 10), (6, 10, 20, 4)],
)
def test_a_chunk_is_n_d_over_v_to_a_power_of_two(
    tokens: int, hidden: int, vocabulary: int, chunk: int
) -> None:
    assert fused_chunk(tokens, hidden, vocabulary) == chunk


def test_a_loss_over_shares_of_the_ids_is_divided() -> None:
    split = amounts(SYMBOLS, sequence_parallel=True)
    assert split == [4 * N_V / 4, 10 * N_V / 4, 12 * N_V / 4]
    assert amounts(SYMBOLS, framework="megatron") == [4 * N_V / 4, 2 * N_V / 4, 2 * N_V / 4]
    fused = amounts(SYMBOLS, framework="megatron", loss="kernel")
    assert fused == [4 * N_V / 4, 2 * N_V / 4, 6 * N_V / 4]
