"""GPU memory of a training step on the fullest rank, at the moment of its peak.

`moments` lists the moments of a step and the memory that is alive at each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tokmill.bill.activations.layers import layer_parts
from tokmill.bill.activations.megatron import megatron_parts
from tokmill.bill.activations.mixers import WITH_KERNELS
from tokmill.bill.activations.part import Part
from tokmill.bill.activations.situation import Situation, activation_symbols, situation
from tokmill.bill.bill_settings import complete_training
from tokmill.bill.formula import Bill, Line
from tokmill.bill.models.model import UNCOUNTED, Model
from tokmill.bill.moments import (
    Moments,
    Stage,
    hooks_inputs,
    moments_of,
    moments_of_states,
    offloaded_activations,
)
from tokmill.bill.overhead import (
    FRAGMENTATION,
    OUTSIDE,
    WORKSPACES,
    context_line,
    fragmentation_line,
    nccl_line,
    workspace_line,
)
from tokmill.bill.states.buffers import STREAMS_FSDP, streams_line
from tokmill.bill.states.optimizers import FP32_BYTES
from tokmill.bill.states.parallel import fullest_stage, stage_layers
from tokmill.bill.states.states import EXPERTS_PRODUCT, GRADIENTS, States, rank_states
from tokmill.settings.training import TrainingSettings

MISSING = "activations and logits"
DORA = "DoRA's magnitudes and their products (30% more was measured)"
NO_KERNELS = (
    "linear attention and state spaces without the kernels of flash-linear-attention, mamba-ssm "
    "and causal-conv1d: transformers' own code keeps several times as much (attention eager)"
)
MATTERS = (*UNCOUNTED, DORA, EXPERTS_PRODUCT)
"""Of what is left out, the parts without which no verdict can be "fits"."""
NO_SHAPE = "activations, logits, autocast's casts: the model's layers and widths are not known"


@dataclass(frozen=True, slots=True)
class StageBill:
    """The bill of a pipeline stage: its number from 0, its peak, and all moments of a step."""

    number: int
    peak: Bill
    moments: tuple[Bill, ...]

    @property
    def allocated_bytes(self) -> int:
        """Bytes of the tensors at the peak, as torch.cuda.max_memory_allocated counts them."""
        return max(allocated_bytes(moment) for moment in self.moments)


@dataclass(frozen=True, slots=True)
class TrainingBill:
    """The bills of the stages that may need most memory: first, last, and that of most states.

    Without a pipeline there is one stage.
    """

    stages: tuple[StageBill, ...]

    @property
    def fullest(self) -> StageBill:
        """The stage with the highest peak, of equal ones the first."""
        return max(self.stages, key=lambda stage: stage.peak.n_bytes)

    @property
    def peak(self) -> Bill:
        """The peak of the fullest stage: the memory that a GPU needs, within its bounds."""
        most = max(stage.peak.high_bytes for stage in self.stages)
        return replace(self.fullest.peak, bounds=(self.fullest.peak.low_bytes, most))

    @property
    def moments(self) -> tuple[Bill, ...]:
        """The moments of a step of the fullest stage, in their order."""
        return self.fullest.moments

    @property
    def allocated_bytes(self) -> int:
        """Bytes of the tensors at the peak of the fullest stage."""
        return self.fullest.allocated_bytes

    @property
    def activation_bytes(self) -> int:
        """The most that activations and logits, which grow with batch and length, take together.

        Another moment may be the peak: an optimizer step has none.
        """
        return max(activation_bytes(moment) for moment in self.moments)

    def as_json(self) -> dict[str, Any]:
        """Return plain values: peak and moments of the fullest stage, and the peak of each."""
        return {
            "peak": self.peak.as_json(),
            "activation_bytes": self.activation_bytes,
            "moments": [moment.as_json() for moment in self.moments],
            "stages": [
                {"number": stage.number, "peak": stage.peak.as_json()} for stage in self.stages
            ],
        }


def allocated_bytes(moment: Bill) -> int:
    """Return the bytes of a moment's tensors, without the memory of libraries and the driver."""
    outside = (*OUTSIDE, WORKSPACES.name, FRAGMENTATION.name, STREAMS_FSDP.name)
    return sum(line.n_bytes for line in moment.lines if line.name not in outside)


def activation_bytes(moment: Bill) -> int:
    """Return the bytes of a moment that depend on the tokens `n` of a micro batch."""
    return sum(line.n_bytes for line in moment.lines if "n" in line.symbols)


def training_bill(model: Model, training: TrainingSettings) -> TrainingBill:
    """Return GPU memory of a training step, from the second on.

    Raises:
        UsageError: settings contradict each other or the model.
    """
    training = complete_training(training, model, None)
    if not model.has_shape:
        return TrainingBill((_states_bill(model, training),))
    if training.transformers == "auto" and version_matters(model, training):
        if model.experts is not None and hooks_inputs(training):
            return max(of_versions(model, training), key=lambda bill: bill.peak.n_bytes)
        training = replace(training, transformers="5" if model.experts is not None else "4")
    numbers = {0, training.pipeline_parallel - 1, fullest_stage(model, training)}
    stages = (_stage(model, training, number) for number in sorted(numbers))
    return TrainingBill(tuple(_stage_bill(stage) for stage in stages))


def version_matters(model: Model, training: TrainingSettings) -> bool:
    """Return whether versions of transformers differ: in FSDP1's hooks, or in stacked experts."""
    adapted = training.adapter != "none" and training.framework == "hf"
    return adapted and (model.experts is not None or hooks_inputs(training))


def of_versions(model: Model, training: TrainingSettings) -> tuple[TrainingBill, ...]:
    """Return the bills with transformers 4 and 5."""
    return tuple(training_bill(model, replace(training, transformers=v)) for v in ("4", "5"))


def _stage_bill(stage: Stage) -> StageBill:
    """Return the bill of a stage."""
    left = (
        *stage.model.leaves_out,
        *stage.states.leaves_out,
        *left_out(stage.facts, stage.training),
    )
    symbols = stage.symbols
    bills = _bills(
        stage.states,
        stage.training,
        moments_of(stage),
        attention_bytes=FP32_BYTES * symbols["n"] * symbols["a"] * symbols["h"],
        logits=symbols["n"] * symbols["V"] / symbols["t"] if stage.has_loss else 0,
    )
    missing = "; ".join(each for each in left if each in MATTERS)
    return _with_peak(stage.number, bills, left, missing)


def _states_bill(model: Model, training: TrainingSettings) -> StageBill:
    """Return the states of a model without a shape."""
    states = rank_states(model, training)
    bills = _bills(states, training, moments_of_states(states))
    return _with_peak(0, bills, (*model.leaves_out, *states.leaves_out, NO_SHAPE), MISSING)


def _bills(
    states: States,
    training: TrainingSettings,
    moments: Moments,
    *,
    attention_bytes: float = 0,
    logits: float = 0,
) -> Iterator[Bill]:
    """Yield the bill of each moment: its lines, and what libraries, allocator and driver take.

    `attention_bytes` are FlashAttention's fp32 gradients of the queries, `logits` their elements.
    """
    workspace = workspace_line(
        training.gpu, megatron=training.framework == "megatron", attention_bytes=attention_bytes
    )
    nccl = nccl_line(training)
    outside = (context_line(), *((nccl,) if nccl else ()))
    for title, lines in moments:
        tensors = tuple(line for line in lines if line.high_bytes)
        made = sum(line.n_bytes for line in tensors if line.name == GRADIENTS.name)
        streams = states.gathered and streams_line(states.tensors, training, states.gradients, made)
        beside = (*((streams,) if streams else ()), workspace)
        fragmentation = fragmentation_line(
            sum(line.n_bytes for line in tensors),
            sum(line.high_bytes for line in tensors),
            training,
            logits=logits if any("V" in line.symbols for line in tensors) else 0,
            outside=sum(line.n_bytes for line in (*beside, *outside)),
        )
        yield Bill(f"GPU memory, training: {title}", (*tensors, *beside, fragmentation, *outside))


def _with_peak(
    number: int, bills: Iterable[Bill], leaves_out: Iterable[str], missing: str
) -> StageBill:
    """Return the bill of a stage from those of its moments, and what they leave out."""
    out = tuple(dict.fromkeys(leaves_out))
    moments = tuple(replace(bill, leaves_out=out, missing=missing) for bill in bills)
    # Where fragmentation takes the rest of a GPU, several moments need all of it.
    peak = max(moments, key=lambda bill: (bill.n_bytes, allocated_bytes(bill)))
    bounds = (max(bill.low_bytes for bill in moments), max(bill.high_bytes for bill in moments))
    return StageBill(number, replace(peak, bounds=bounds), moments)


def offloaded_lines(model: Model, training: TrainingSettings) -> tuple[Line, ...]:
    """Return the activations that the first stage offloads to the host RAM of a node.

    Raises:
        UsageError: settings contradict each other or the model.
    """
    if not (model.has_shape and training.activation_offload):
        return ()
    return tuple(offloaded_activations(_stage(model, complete_training(training, model, None), 0)))


def _stage(model: Model, training: TrainingSettings, number: int) -> Stage:
    """Return a pipeline stage with the parts of its layers."""
    facts, layers = situation(model, training), stage_layers(model, training, number)
    states = rank_states(model, training, number)
    parts = (
        megatron_parts(facts, training) if training.framework == "megatron" else layer_parts(facts)
    )
    symbols = activation_symbols(model, training, facts)
    return Stage(
        model=model,
        training=training,
        states=states,
        parts=tuple(_of_layers(parts, layers)),
        facts=facts,
        symbols=symbols | {"q_gradient": states.gradients.symbols["q_gradient"]},
        numbers=tuple(layers),
        in_flight=min(_in_flight(training, number), training.accumulation),
        has_loss=number == training.pipeline_parallel - 1,
        number=number,
    )


def _in_flight(training: TrainingSettings, number: int) -> float:
    """Return the micro batches whose activations a stage holds: one forward, one backward (1F1B).

    Stage i of p holds p - i. Interleaved (Narayanan et al. 2021), its v chunks run 2 (p - i - 1) +
    (v - 1) p forward passes of a chunk ahead, and one more: Megatron-LM, schedules.py.
    """
    p, v = training.pipeline_parallel, training.virtual_stages
    if v == 1:
        return p - number
    return (2 * (p - number - 1) + (v - 1) * p + 1) / v


def _of_layers(parts: Iterable[Part], layers: Sequence[int]) -> Iterator[Part]:
    """Yield the parts that the layers of a stage have."""
    for part in parts:
        if here := tuple(layer for layer in part.layers if layer in layers):
            yield replace(part, layers=here)


def left_out(facts: Situation, training: TrainingSettings) -> Iterator[str]:
    """Yield a sentence for each amount of memory that has no formula."""
    model = facts.model
    if training.framework == "megatron":
        yield "Megatron: exchange buffers of experts and stages"
        if model.experts:
            yield "experts: assumes evenly spread tokens; uneven ones take more on a GPU"
        return
    if not model.style.measured:
        yield f"activations of {model.family}: taken from a similar layer; not measured"
    if model.experts:
        yield "experts: assumes evenly spread tokens and grouped matrix products"
    yield from _attention_limits(facts, training)
    if any(block.kind in WITH_KERNELS for block in model.blocks) and not facts.eager:
        yield NO_KERNELS
    if training.adapter == "dora":
        yield DORA


def _attention_limits(facts: Situation, training: TrainingSettings) -> Iterator[str]:
    """Yield what is not counted of attention, and where its kernel was assumed."""
    slides = any(window <= training.sequence for window in facts.model.windows)
    if slides and not facts.eager and not facts.masked:
        yield "sdpa masks of sliding windows (counted with attention sdpa-mask)"
    if facts.style.leaves_out and not facts.eager:
        yield facts.style.leaves_out
    if "sdpa" in facts.style.kernels:
        return
    named = f"{facts.model.family} has no sdpa in transformers"
    if facts.eager and training.attention != "eager":
        yield f"{named}: counted as eager attention, its default"
    if not facts.eager:
        yield f"{named}: its default is eager attention; counted with the flash kernel that is set"
