"""Costs that the formulas of activations do not cover; listed below the bill."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokmill.memory.activations.situation import Situation
    from tokmill.settings.bill import TrainingSettings

UNMEASURED = ("baichuan", "chatglm", "minimind", "plain")


def left_out(at: Situation, training: TrainingSettings) -> Iterator[str]:
    """Yield a sentence for each thing of this training that no row models."""
    model = at.model
    if training.framework == "megatron":
        yield "Megatron's activations are a published formula; not measured"
        return
    if model.family in UNMEASURED:
        yield f"activations of {model.family}: taken from a similar layer; not measured"
    if model.experts:
        yield from _experts(training)
    if model.attention.kv_rank:
        yield "activations of compressed attention (MLA): a formula; not measured"
    yield from _attention(at, training)
    if training.adapter == "dora":
        yield "DoRA's computation of magnitudes: not modelled"
    if training.weights in ("fp8", "int8"):
        yield f"what {training.weights} kernels need while they compute: not modelled"
    yield from _parallel(training)


def _experts(training: TrainingSettings) -> Iterator[str]:
    yield "experts: assumes evenly spread tokens and grouped matrix products"
    if training.precision == "amp":
        yield "experts under autocast: counted in 16 bit; a CPU keeps them in fp32"


def _attention(at: Situation, training: TrainingSettings) -> Iterator[str]:
    windows = at.model.attention.windows
    slides = any(0 < window <= training.sequence for window in windows)
    if slides and training.attention == "flash":
        yield "sdpa masks of sliding windows (counted with attention sdpa-mask)"
    if at.model.family == "falcon" and training.attention != "eager":
        yield "sdpa with one key-value head may use a kernel that keeps the scores"
    if at.style.always_eager and training.attention != "eager":
        yield f"{at.model.family} has no flash attention in transformers: counted as eager"


def _parallel(training: TrainingSettings) -> Iterator[str]:
    if training.tensor_parallel > 1:
        logits = "and logits" if training.sequence_parallel else "but not logits"
        yield f"tensor parallelism: heads, widths {logits} divided by t; not measured"
    if training.sequence_parallel:
        yield "sequence parallelism: divides the loss and inputs of checkpointed layers, no others"
    if training.pipeline_parallel > 1:
        yield "pipeline: one forward, one backward (1F1B), equal stages; not measured"
    if training.context_parallel > 1:
        yield "context parallelism: s / c tokens per GPU, without exchange buffers; not measured"
