"""Amounts, moments, settings and advice of a bill as phrases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.bill.states.precision import precision_of, stored_note
from tokmill.bill.verdict import BARELY, DOES_NOT_FIT
from tokmill.words.plural import plural
from tokmill.words.units import count, memory, scale, seconds

if TYPE_CHECKING:
    from tokmill.bill.bill_settings import BillSettings
    from tokmill.bill.compute import Compute
    from tokmill.bill.formula import Bill
    from tokmill.bill.host_ram.machine import Verdict
    from tokmill.bill.models.model import Model
    from tokmill.bill.remedies.advice import Advice, MostServed
    from tokmill.bill.training_bill import TrainingBill
    from tokmill.settings.inference import InferenceSettings
    from tokmill.settings.training import TrainingSettings

_PARALLEL = ("tensor", "pipeline", "context", "expert")
_MOMENTS = {
    "end of forward": "end of the forward pass",
    "start of backward": "start of the backward pass",
    "end of backward": "end of the backward pass",
    "optimizer's step": "optimizer step",
}
"""Words for moments that need more of them than their names."""


def speed_text(training: TrainingSettings) -> str:
    """Return the basis of a time."""
    return "by roofline" if training.throughput == "roofline" else f"at {training.mfu:.0%} MFU"


def time_text(found: Compute, settings: BillSettings) -> str:
    """Return time, GPU hours and cost, or why they are not known."""
    tokens = f"{count(found.trained_tokens)} tokens"
    steps = f"{plural(found.steps, 'step')} of {count(found.step_tokens)} tokens"
    if found.seconds is None or found.gpu_hours is None:
        return "; ".join((f"{tokens}: {steps}", *found.notes))
    how = settings.training
    text = f"{seconds(found.seconds)} for {tokens} {speed_text(how)}"
    if how.gpus > 1:
        text += f", {found.gpu_hours:,.0f} GPU hours"
    if found.cost is not None:
        text += f", cost {found.cost:,.2f}" if found.cost < 1000 else f", cost {found.cost:,.0f}"
    return "; ".join((f"{text}; {steps}", *found.notes))


def model_text(model: Model) -> str:
    """Return a model's name, family and parameters."""
    family = f" ({model.family})" if model.name != model.family else ""
    active = model.active_parameters
    text = f"{model.name}{family}, {model.parameters:,} parameters"
    return text + (f", {active:,} active per token" if active != model.parameters else "")


def training_text(settings: BillSettings, model: Model) -> str:
    """Return the settings that decide the bill; of the others those that are not the default."""
    how = settings.training
    parts = [
        precision_of(how), how.optimizer, f"micro batch {how.micro_batch:,}",
        f"sequence {how.sequence:,}",
    ]  # fmt: skip
    parts += [f"accumulation {how.accumulation:,}"] if how.accumulation > 1 else []
    parts += [f"checkpointing {how.checkpointing}"] if how.checkpointing != "none" else []
    attention = model.style.attention(how.attention)
    parts += [f"attention {attention}"] if attention != "flash" else []
    parts += [f"{how.adapter} of rank {how.adapter_rank}"] if how.adapter != "none" else []
    parts += [f"base {stored}"] if (stored := stored_note(model, how)) else []
    parts += [f"{how.gpus:,} GPUs, {how.sharding}"] if how.gpus > 1 else []
    for kind in _PARALLEL:
        n: int = getattr(how, f"{kind}_parallel")
        parts += [f"{kind} parallel {n:,}"] if n > 1 else []
    parts += [f"offload {how.offload}"] if how.offload != "none" else []
    return ", ".join(parts)


def inference_text(settings: BillSettings, model: Model) -> str:
    """Return the settings that decide the bill of inference."""
    how = settings.inference
    context = how.context or settings.training.sequence
    stored = model.stored.note if model.stored else "bf16"
    weights = stored if how.weight_type == "auto" else how.weight_type
    return (
        f"weights {weights}, KV cache {how.kv_type}, batch {how.batch:,}, "
        f"context {context:,}" + (f", {how.serving_gpus:,} GPUs" if how.serving_gpus > 1 else "")
    )


def served_text(most: MostServed, how: InferenceSettings, context: int) -> str:
    """Return the largest batch and the longest context that fit."""
    if not most.batch:
        return "no batch fits at this context"
    longest = "the model's maximum of " if most.is_bounded else "context "
    return (
        f"batch {most.batch:,} at context {how.context or context:,}; "
        f"at batch {how.batch:,}, {longest}{most.context:,}"
    )


def plan_text(advice: Advice) -> str:
    """Return the options that together make it fit, with the peak then."""
    options = " ".join(option for step in advice.plan for option in step.options)
    return f"{options} ({memory(advice.plan[-1].peak_bytes)})"


def largest_text(advice: Advice, settings: BillSettings) -> str:
    """Return the largest micro batch and the longest sequence that fit, as text."""
    how = settings.training
    most = "the model's maximum of " if advice.is_bounded else "sequence "
    return (
        f"micro batch {advice.largest_micro_batch:,} at sequence {how.sequence:,}; "
        f"at micro batch {how.micro_batch:,}, {most}{advice.largest_sequence:,}"
    )


def stages_text(bill: TrainingBill) -> str:
    """Return the number of the fullest pipeline stage, and the peaks of the first and the last."""
    peaks = (f"stage {one.number + 1} {memory(one.peak.n_bytes)}" for one in bill.stages)
    return f"fullest pipeline stage: {bill.fullest.number + 1} ({', '.join(peaks)})"


def host_verdict_text(found: Verdict) -> str:
    """Return whether a node has the memory, or what to set to see it."""
    room = f"{memory(found.usable_bytes)} of {found.machine}"
    if found.said == "unknown":
        return "set --host-ram to see whether it fits"
    if found.said == BARELY:
        return f"fits in {room} by the estimate, not by the upper bound"
    if found.said != DOES_NOT_FIT:
        return f"{found.said.replace('fits', f'fits in {room}', 1)}"
    options = f"; fits with {' '.join(found.together)}" if found.together else ""
    return f"{found.said} in {room}{options}"


def moment(bill: Bill) -> str:
    """Return the moment that a bill's title names after its place."""
    name = bill.title.partition(": ")[2]
    return _MOMENTS.get(name, name)


def span(bill: Bill) -> str:
    """Return the expected total with its bounds: `9.55 GiB (9.01 to 10.56)`."""
    divisor, unit, digits = scale(bill.high_bytes, binary=True)
    low, expected, high = (
        f"{n / divisor:,.{digits}f}" for n in (bill.low_bytes, bill.n_bytes, bill.high_bytes)
    )
    return f"{expected} {unit}" if low == high else f"{expected} {unit} ({low} to {high})"
