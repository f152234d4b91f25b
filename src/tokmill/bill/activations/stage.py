"""A pipeline stage, and the gradients and 16-bit casts of its weights at a moment of backward."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tokmill.bill.activations.part import GRADIENT_RESIDUAL, STEPS, Part, rows_line
from tokmill.bill.activations.situation import Situation
from tokmill.bill.formula import Formula, Line
from tokmill.bill.models.model import Model
from tokmill.bill.states.buffers import CASTS
from tokmill.bill.states.optimizers import FP32_BYTES
from tokmill.bill.states.parallel import RankTensor, sharding_of
from tokmill.bill.states.states import States
from tokmill.bill.states.weights import GRADIENTS
from tokmill.settings.training import TrainingSettings

JUST_MADE = Formula(
    "gradient of a weight, just made", "q_gradient * P_made / shards", STEPS, "exact"
)
TIED_WAITING = Formula(
    "gradient of the tied head, kept until the embedding's", "q_gradient * P_table", STEPS,
    "exact",
)  # fmt: skip
TIED_SUM = Formula(
    "gradients of the tied embedding: two, and their sum", "3 * q_gradient * P_table", STEPS,
    "exact",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stage:
    """A pipeline stage and all that decides its moments.

    `number` counts from 0. `layers` is the number of its layers, `in_flight` the number of micro
    batches whose activations it keeps at the same time. `has_loss`: it is the last stage.
    """

    model: Model
    training: TrainingSettings
    states: States
    parts: tuple[Part, ...]
    facts: Situation
    symbols: Mapping[str, float]
    layers: int
    in_flight: float
    has_loss: bool
    number: int = 0

    @property
    def is_hf(self) -> bool:
        """Return whether its modules are Hugging Face's, not Megatron's."""
        return self.training.framework == "hf"

    @property
    def selective(self) -> bool:
        """Return whether a part of a layer is recomputed; in Megatron the rows omit that part."""
        return self.training.checkpointing == "selective" and self.is_hf

    @property
    def recomputed(self) -> bool:
        """Return whether layers are recomputed in backward, completely or partly."""
        return self.selective or self.training.checkpointing == "full"

    @property
    def tied_gradient(self) -> bool:
        """Return whether a tied embedding has one gradient for both uses; not in Megatron."""
        trained = self.training.adapter == "none" and self.is_hf
        return self.model.tied and trained and self.training.pipeline_parallel == 1

    @property
    def table(self) -> int:
        """Return the elements of the token embedding, which is narrower than d in opt-350m."""
        return _elements(_of_vocabulary(self.states.tensors, "embedding"))

    def layer_tensors(self, *, first: bool) -> list[RankTensor]:
        """Return the tensors of its first layer, or of its last."""
        number = self.layer_number(first=first)
        return [tensor for tensor in self.states.tensors if number in (tensor.layers or ())]

    def layer_number(self, *, first: bool) -> int:
        """Return the number of its first layer in the model, or of its last."""
        numbers = {number for tensor in self.states.tensors for number in tensor.layers or ()}
        return (min if first else max)(numbers, default=0)


def _elements(tensors: Iterable[RankTensor]) -> int:
    return sum(tensor.size for tensor in tensors)


def _of_vocabulary(tensors: Iterable[RankTensor], module: str) -> list[RankTensor]:
    """Return the embedding of token ids, or the head."""
    here = (tensor for tensor in tensors if tensor.tensor.module == module)
    return [tensor for tensor in here if tensor.tensor.split == "vocabulary"]


def gradients_line(stage: Stage, elements: int) -> Line:
    """Return the gradients when those of `elements` of the rank's trained elements exist.

    All exist all the time if they accumulate, under Megatron-LM, and with ZeRO-3, which allocates
    its shard before the first step (DeepSpeed's stage3.py, grad_partitions_flat_buffer).
    """
    training, states = stage.training, stage.states
    lasting = sharding_of(training).program == "megatron" or training.sharding == "zero-3"
    if lasting or training.accumulation > 1 or not states.trainable:
        return states.gradients
    symbols = states.gradients.symbols
    made = round(symbols["P_trained"] * elements / states.trainable)
    return GRADIENTS.line({**symbols, "P_trained": made})


def made_by_head(stage: Stage) -> int:
    """Return the trained elements of a head that is not tied; their gradients are made first."""
    heads = (tensor for tensor in stage.states.tensors if tensor.tensor.module == "head")
    return _elements(tensor for tensor in heads if tensor.trained)


def made_before(stage: Stage, parts: Sequence[Part], index: int, *, first: bool) -> int:
    """Return the elements whose gradients exist at the largest moment of part `index` of a layer.

    Backward has then passed the head, all later layers (for the `first` layer: all others), the
    layer's later parts, and the last matrix of this part.
    """
    number = stage.layer_number(first=first)
    trained = [tensor for tensor in stage.states.tensors if tensor.trained]
    outside = [t for t in trained if t.layers is None and t.tensor.kind != "embedding"]
    later = sum(t.size * sum(layer > number for layer in t.layers or ()) for t in trained)
    passed = _passed(stage, parts, index, first=first)
    return _elements(outside) + later + _elements(tensor for tensor in passed if tensor.trained)


def casts_before(stage: Stage, parts: Sequence[Part], index: int, *, first: bool) -> int:
    """Return the elements of a layer's casts that are freed before the largest moment of a part."""
    matrices = (t for t in _passed(stage, parts, index, first=first) if t.tensor.kind == "linear")
    return _elements(tensor for tensor in matrices if tensor.weight_bytes == FP32_BYTES)


def _passed(stage: Stage, parts: Sequence[Part], index: int, *, first: bool) -> list[RankTensor]:
    """Return the tensors of a layer that backward has passed at the largest moment of a part."""
    own, later = parts[index], {part.module for part in parts[index + 1 :]}

    def is_passed(tensor: RankTensor) -> bool:
        is_last = tensor.tensor.module == own.module and tensor.tensor.split == "rows"
        return (is_last and own.made != "none") or tensor.tensor.module in later

    return [tensor for tensor in stage.layer_tensors(first=first) if is_passed(tensor)]


def first_gradient(stage: Stage, own: Part, *, first: bool) -> tuple[Line, ...]:
    """Return the gradients of a part's first matrices, if its largest moment is their creation."""
    if own.made != "all":
        return ()
    here = (t for t in stage.layer_tensors(first=first) if t.trained and t.tensor.split != "rows")
    return (_just_made(stage, _elements(t for t in here if t.tensor.module == own.module)),)


def _just_made(stage: Stage, elements: int) -> Line:
    return JUST_MADE.line({**stage.states.gradients.symbols, "P_made": elements})


def casts_lines(
    stage: Stage, layers: float, *, head: bool = False, freed: int = 0
) -> tuple[Line, ...]:
    """Return autocast's casts of `layers` layers of a stage, except `freed`, and of the head."""
    casts, tensors = stage.states.casts, stage.states.tensors
    if casts is None:
        return ()
    heads = _of_vocabulary(tensors, "embedding" if stage.model.tied else "head")
    in_head = _elements(tensor for tensor in heads if tensor.weight_bytes == FP32_BYTES)
    inside = (casts.symbols["P_cast"] - in_head) * layers / stage.layers
    return (CASTS.line({"P_cast": round(max(inside - freed, 0) + in_head * head)}),)


def waiting_gradient(stage: Stage) -> tuple[Line, ...]:
    """Return the gradient of a tied head, which waits for the embedding's."""
    if not stage.tied_gradient:
        return ()
    return (TIED_WAITING.line({**stage.symbols, "P_table": stage.table}),)


def last_gradients(stage: Stage) -> tuple[Line, ...]:
    """Return the gradients when that of the embedding is made, which is last."""
    table, training = stage.table, stage.training
    if training.adapter != "none" or not stage.is_hf or not table:
        return (stage.states.gradients,)
    made = gradients_line(stage, stage.states.trainable - table)
    if stage.tied_gradient:
        return made, TIED_SUM.line({**stage.symbols, "P_table": table})
    output = rows_line("gradient of the embedding's output", (GRADIENT_RESIDUAL,), stage.symbols)
    return made, _just_made(stage, table), output
