"""Optimizer states of the trained tensors, a line for each kind, and what a step takes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from tokmill.bill.formula import Formula, Line
from tokmill.bill.states.parallel import RankTensor, count_among, sharding_of
from tokmill.bill.states.precision import Scheme, scheme_of
from tokmill.settings.training import TrainingSettings

FP32_BYTES = 4
SMALLEST_8BIT = 4096
"""bitsandbytes keeps states of smaller tensors in 32 bit."""
SCALE_BYTES = FP32_BYTES / 256
"""Bytes per element of the fp32 scales that bitsandbytes keeps for blocks of 256 elements."""

PRECISION_AWARE = {"adamw-bf16": 2, "adamw-fp8": 1}
"""Bytes of a moment in Megatron-LM's precision-aware optimizer. A fp32 copy of the weights is then
the 16 bits that the weights lack (store_param_remainders). Host RAM and checkpoints have fp32."""

MASTER, MAIN_GRADIENT = "fp32 copy of the weights", "fp32 copy of the gradients"
MOMENTUM, FIRST, SECOND = "momentum", "first moment", "second moment"
FACTORS = "row and column factors"
FIRST_8BIT, SECOND_8BIT = "first moment in 8 bit", "second moment in 8 bit"
SCALES = "scales of 8-bit blocks"

_SCHEME = "ZeRO (Rajbhandari et al. 2020), section 3.1"
_BITSANDBYTES = "bitsandbytes' blockwise optimizers: 1 B an element, a fp32 scale for 256"
_ADAM = "exact; lower bound of adamw-8bit: bitsandbytes without Hugging Face's Trainer keeps "
_ADAM += "embeddings in 8 bit too"
_SOURCES = {
    MASTER: (_SCHEME, "exact"),
    MAIN_GRADIENT: (_SCHEME, "exact"),
    MOMENTUM: ("torch.optim's SGD and Muon; Lion's code", "exact"),
    FIRST: ("torch.optim's AdamW", _ADAM),
    SECOND: ("torch.optim's AdamW; of Adafactor's vectors", _ADAM),
    FACTORS: ("transformers' Adafactor: sums of a matrix's rows and columns", "exact"),
    FIRST_8BIT: (_BITSANDBYTES, "exact"),
    SECOND_8BIT: (_BITSANDBYTES, "exact"),
    SCALES: (_BITSANDBYTES, "exact"),
}
STATES = {
    name: Formula(name, "q_state * elements / shards", source, error)
    for name, (source, error) in _SOURCES.items()
}
"""In the order of a bill."""


def optimizer_lines(
    tensors: Sequence[RankTensor], training: TrainingSettings, shards: int
) -> tuple[Line, ...]:
    """Return the optimizer states of the trained `tensors`, sharded over `shards` ranks."""
    kept = kept_states(tensors, training.optimizer, scheme_of(training), shards)
    less = 0
    if training.optimizer == "adamw-8bit":
        tables = [share for share in tensors if share.tensor.kind == "embedding"]
        less = round((FP32_BYTES - 1 - SCALE_BYTES) * count_among(tables, shards) / shards)
    lines = []
    for name, symbols in kept.items():
        low = STATES[name].evaluate(symbols) - (less if name in (FIRST, SECOND) else 0)
        lines.append(STATES[name].line(symbols, low_bytes=low))
    return tuple(lines)


def kept_states(
    tensors: Sequence[RankTensor], optimizer: str, scheme: Scheme, shards: int
) -> dict[str, Mapping[str, float]]:
    """Return the symbols of each kind of state, by its name in `STATES`; no empty ones."""
    trained = count_among(tensors, shards)
    elements = Counter({MASTER: trained, MAIN_GRADIENT: trained})
    for share in tensors:
        elements.update(states_of(share.among(shards), optimizer))
    moment = moment_bytes(optimizer, scheme)
    n_bytes: dict[str, float] = dict.fromkeys((MOMENTUM, FIRST, SECOND, FACTORS), moment)
    master = scheme.master // 2 if optimizer in PRECISION_AWARE else scheme.master
    n_bytes |= {MASTER: master, MAIN_GRADIENT: scheme.main_gradient}
    n_bytes |= {FIRST_8BIT: 1, SECOND_8BIT: 1, SCALES: SCALE_BYTES}
    return {
        name: {"q_state": n_bytes[name], "elements": elements[name], "shards": shards}
        for name in STATES
        if n_bytes[name] * elements[name]
    }


def states_of(share: RankTensor, optimizer: str) -> dict[str, int]:
    """Return the elements of each kind of state of all copies of a tensor."""
    count = share.count
    match optimizer:
        case "sgd":
            return {}
        case "momentum" | "lion":
            return {MOMENTUM: count}
        case "adafactor" if len(share.shape) > 1:
            rows, columns = share.shape[-2:]
            return {FACTORS: count // rows + count // columns}
        case "adafactor":
            return {SECOND: count}
        case "muon" if is_orthogonalized(share):
            return {MOMENTUM: count}
        case "adamw-8bit" if is_kept_in_8_bit(share):
            return {FIRST_8BIT: count, SECOND_8BIT: count, SCALES: 2 * count}
        case _:
            return {FIRST: count, SECOND: count}


def is_orthogonalized(share: RankTensor) -> bool:
    """Return whether Muon updates a tensor: a matrix or stacked experts inside a layer."""
    axes = {"linear": 2, "experts": 3}.get(share.tensor.kind)
    return share.layers is not None and len(share.shape) == axes


def is_kept_in_8_bit(share: RankTensor) -> bool:
    """Return whether bitsandbytes' AdamW keeps a tensor's moments in 8 bit.

    Small tensors stay in 32 bit, and with Hugging Face's Trainer embeddings too.
    """
    return share.size >= SMALLEST_8BIT and share.tensor.kind != "embedding"


def moment_bytes(optimizer: str, scheme: Scheme) -> int:
    """Return the bytes of an element of a moment that is not in 8 bit.

    transformers' Adafactor and 8-bit AdamW keep it in fp32, whatever type the weights have.
    """
    if optimizer in ("adafactor", "adamw-8bit"):
        return FP32_BYTES
    return PRECISION_AWARE.get(optimizer, scheme.moment)


def off_gpu(optimizer: str) -> str:
    """Return the optimizer that has the states of an optimizer in host RAM and in checkpoints."""
    return "adamw" if optimizer in PRECISION_AWARE else optimizer


STEP = Formula(
    "temporary copies of the optimizer's step",
    "copies * q_moment * P_step",
    "PyTorch's optimizers: foreach AdamW takes the root of all second moments at once, the "
    "for-loop two copies of a tensor",
    "exact for AdamW (measured on GPT-2 small: 20.00 and 18.48 B a parameter), SGD and momentum; "
    "Adafactor and Lion by their code; a fused step takes nothing",
)
STEP_MUON = Formula(
    "temporary copies of Muon's step",
    "(q_moment + 4) * P_step + 4 * narrow ** 2",
    "torch.optim.Muon: the update of a matrix, two in bf16, two of its narrow side squared",
    "by its code",
)


def step_line(tensors: Sequence[RankTensor], training: TrainingSettings, shards: int) -> Line:
    """Return the temporary memory of a step on the trained `tensors`, sharded over `shards` ranks.

    Muon updates one complete matrix at a time, also where matrices are sharded; AdamW the rest.
    """
    if training.optimizer != "muon":
        return _step(tensors, training, shards)
    rest = [share for share in tensors if not is_orthogonalized(share)]
    matrices = [share for share in tensors if is_orthogonalized(share)]
    lines = [_step(rest, training, shards), *(_muon_step(share, training) for share in matrices)]
    return max(lines, key=lambda line: line.n_bytes)


def _step(tensors: Sequence[RankTensor], training: TrainingSettings, shards: int) -> Line:
    """Return the temporary memory for all tensors at once, or for the largest one.

    ZeRO flattens all tensors into one.
    """
    copies, at_once = _copies(training)
    if at_once or sharding_of(training).program == "deepspeed":
        elements = count_among(tensors, shards)
    else:
        elements = max((share.size for share in tensors), default=0)
    return STEP.line(
        _symbols(training) | {"copies": copies, "P_step": math.ceil(elements / shards)}
    )


def _copies(training: TrainingSettings) -> tuple[int, bool]:
    """Return the number of copies that a step makes, and whether of all tensors at once.

    Megatron-LM steps with a fused kernel of Apex or Transformer Engine.
    """
    is_megatron = sharding_of(training).program == "megatron"
    scheme, step = scheme_of(training), training.optimizer_step
    if is_megatron or step == "backward":
        step = "fused"
    match training.optimizer:
        case "adafactor":
            # Two of the update; of 16-bit weights also the gradient and the weight in fp32.
            return (2 if FP32_BYTES in (scheme.weight, scheme.master) else 4), False
        case "sgd" | "momentum" | "adamw-8bit":
            return 0, False
        case "lion":
            return (0 if step == "fused" else 2), False
        case _:
            return {"foreach": (1, True), "for-loop": (2, False), "fused": (0, False)}[step]


def _muon_step(share: RankTensor, training: TrainingSettings) -> Line:
    rows, columns = share.shape[-2:]
    return STEP_MUON.line(
        _symbols(training) | {"P_step": rows * columns, "narrow": min(rows, columns)}
    )


def _symbols(training: TrainingSettings) -> dict[str, float]:
    return {"q_moment": moment_bytes(training.optimizer, scheme_of(training))}
