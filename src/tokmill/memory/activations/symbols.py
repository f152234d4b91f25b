"""The values of the rows' symbols, of one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokmill.memory.activations.situation import Situation
    from tokmill.memory.model import Model
    from tokmill.settings.bill import TrainingSettings

DEFAULT_SEQUENCE = 2048


def default_sequence(model: Model) -> int:
    """Return the tokens of a sequence where nothing says them."""
    return min(DEFAULT_SEQUENCE, model.positions or DEFAULT_SEQUENCE)


def activation_symbols(model: Model, training: TrainingSettings, at: Situation) -> dict[str, float]:
    """Return the values; heads and widths are a rank's share, but for Megatron's formulas.

    Those divide by t themselves. With context parallelism a rank sees s / c tokens of a sequence.
    """
    ranks = 1 if training.framework == "megatron" else training.tensor_parallel
    attention, experts = model.attention, model.experts
    return {
        "V": model.vocabulary,
        "a": attention.heads / ranks,
        "b": training.micro_batch,
        "d": model.hidden,
        "f": model.ffn / ranks,
        "h": attention.head_dim,
        "k": max(attention.kv_heads / ranks, 1),
        "n": training.micro_batch * training.sequence / training.context_parallel,
        "q": at.product,
        "r": training.adapter_rank,
        "s": training.sequence,
        "t": training.tensor_parallel,
        "x": at.residual,
        "y": at.adapter or at.product,
        "r_kv": attention.kv_rank,
        "r_q": attention.q_rank,
        "r_rope": attention.rope_dim,
        "h_nope": attention.nope_dim,
        "h_v": attention.value_dim,
        "E": experts.count if experts else 0,
        "e": experts.active if experts else 0,
        "m": experts.ffn / ranks if experts else 0,
        "f_shared": experts.shared_ffn / ranks if experts else 0,
    }
