"""GPU memory of training over a step: forward, loss, backward layer by layer, the optimizer's step.

The bill is that of the fullest rank at the moment when most is there; `moments` says which there
are, and what is alive then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokmill.bill.activations.layers import layer_parts
from tokmill.bill.activations.megatron import megatron_layer
from tokmill.bill.activations.part import Part
from tokmill.bill.activations.situation import activation_symbols, situation
from tokmill.bill.formula import Bill
from tokmill.bill.moments import Stage, moments_of
from tokmill.bill.overhead import CUDA_CONTEXT, FRAGMENTATION, overhead_lines
from tokmill.bill.settled import settled
from tokmill.bill.states.buffers import STREAMS_FSDP, streams_line
from tokmill.bill.states.precision import precision_of
from tokmill.bill.states.states import rank_states
from tokmill.bill.states.weights import GRADIENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokmill.bill.activations.situation import Situation
    from tokmill.bill.formula import Line
    from tokmill.bill.models.model import Model
    from tokmill.bill.states.states import States
    from tokmill.settings.training import TrainingSettings


@dataclass(frozen=True, slots=True)
class TrainingBill:
    """The moment of the peak, and all moments of a step in their order."""

    peak: Bill
    moments: tuple[Bill, ...]

    @property
    def allocated_bytes(self) -> int:
        """The peak's tensors alone, as torch.cuda.max_memory_allocated and MemTracker see them."""
        return max(allocated_bytes(moment) for moment in self.moments)


def allocated_bytes(moment: Bill) -> int:
    """Return the bytes of a moment's tensors: all but what the allocator and the driver take."""
    outside = (FRAGMENTATION.name, CUDA_CONTEXT.name, STREAMS_FSDP.name)
    return sum(line.n_bytes for line in moment.lines if line.name not in outside)


def training_bill(model: Model, training: TrainingSettings) -> TrainingBill:
    """Return GPU memory of the fullest rank over a training step, from the second step on.

    Raises:
        UsageError: settings contradict each other or the model.
    """
    training = settled(training, model, None)
    states = rank_states(model, training)
    bills = [
        tuple(_bill(model, states, stage, title, lines) for title, lines in moments_of(stage))
        for stage in _stages(model, training, states)
    ]
    moments = max(bills, key=lambda moments: max(bill.n_bytes for bill in moments))
    return TrainingBill(max(moments, key=lambda bill: bill.n_bytes), moments)


def _bill(model: Model, states: States, stage: Stage, title: str, lines: tuple[Line, ...]) -> Bill:
    there = tuple(line for line in lines if line.high_bytes)
    allocated = sum(line.n_bytes for line in there)
    high = sum(line.high_bytes for line in there)
    made = sum(line.n_bytes for line in there if line.name == GRADIENTS.name)
    kept = streams_line(states.tensors, stage.training, states.gradients, made)
    leaves_out = dict.fromkeys(
        (*model.leaves_out, *states.leaves_out, *left_out(stage.at, stage.training))
    )
    return Bill(
        f"GPU memory, training: {title}",
        (
            *there,
            *((kept,) if kept else ()),
            *overhead_lines(allocated, high, stage.training.fragmentation),
        ),
        tuple(leaves_out),
    )


def _stages(model: Model, training: TrainingSettings, states: States) -> Iterator[Stage]:
    """Yield the stages that may hold most: the first has the most micro batches, the last the loss.

    One forward, one backward (1F1B): the first keeps as many micro batches as there are stages.
    Interleaved (Narayanan et al. 2021) it keeps (p - 1) / v more, and the last p - (p - 1) / v.
    """
    at = situation(model, training)
    stages, chunks = training.pipeline_parallel, training.virtual_stages
    share = (stages - 1) / chunks
    first = stages + (share if chunks > 1 else 0)
    last = stages - share if chunks > 1 else 1
    for held, has_loss in dict.fromkeys(((first, stages == 1), (last, True))):
        yield Stage(
            model=model,
            training=training,
            states=states,
            parts=_parts(at, training),
            at=at,
            symbols=activation_symbols(model, training, at) | _gradient_symbols(states),
            layers=-(-model.layers // stages),
            held=min(held, training.accumulation),
            has_loss=has_loss,
        )


def _gradient_symbols(states: States) -> dict[str, float]:
    return {"q_gradient": states.gradients.symbols["q_gradient"]}


def _parts(at: Situation, training: TrainingSettings) -> tuple[Part, ...]:
    if training.framework == "hf":
        return layer_parts(at)
    rows = megatron_layer(training, gated=at.style.gated)
    return (Part("layers", "mlp", rows, rows, (), at.model.layers),)


def left_out(at: Situation, training: TrainingSettings) -> Iterator[str]:
    """Yield a sentence for each thing of this training that no row models."""
    model = at.model
    if training.framework == "megatron":
        yield "Megatron's activations are a published formula; not measured"
        return
    if not model.style.measured:
        yield f"activations of {model.family}: taken from a similar layer; not measured"
    if model.experts:
        yield from _experts_limits(training)
    if model.attention.kv_rank:
        yield "activations of compressed attention (MLA): a formula; not measured"
    yield from _attention_limits(at, training)
    if training.adapter == "dora":
        yield "DoRA's computation of magnitudes: not modelled"
    if training.weights in ("fp8", "int8"):
        yield f"what {training.weights} kernels need while they compute: not modelled"
    yield from _parallel_limits(training)


def _experts_limits(training: TrainingSettings) -> Iterator[str]:
    yield "experts: assumes evenly spread tokens and grouped matrix products"
    if precision_of(training) == "amp":
        yield "experts under autocast: counted in 16 bit; a CPU keeps them in fp32"


def _attention_limits(at: Situation, training: TrainingSettings) -> Iterator[str]:
    windows = at.model.attention.windows
    slides = any(0 < window <= training.sequence for window in windows)
    if slides and not at.eager and not at.masked:
        yield "sdpa masks of sliding windows (counted with attention sdpa-mask)"
    if at.style.leaves_out and not at.eager:
        yield at.style.leaves_out
    if "sdpa" in at.style.kernels:
        return
    named = f"{at.model.family} has no sdpa in transformers"
    if at.eager and training.attention != "eager":
        yield f"{named}: counted as eager attention, its default"
    if not at.eager:
        yield f"{named}: its default is eager attention; counted with a flash kernel as asked"


def _parallel_limits(training: TrainingSettings) -> Iterator[str]:
    if training.tensor_parallel > 1:
        logits = "and logits" if training.sequence_parallel else "but not logits"
        yield f"tensor parallelism: heads, widths {logits} divided by t; not measured"
    if training.sequence_parallel:
        yield "sequence parallelism: divides the loss and inputs of checkpointed layers, no others"
    if training.pipeline_parallel > 1:
        yield "pipeline: one forward, one backward (1F1B), equal stages; not measured"
    if training.context_parallel > 1:
        yield "context parallelism: s / c tokens per GPU, without exchange buffers; not measured"
