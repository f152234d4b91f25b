"""Logits and loss: what is kept until backward, temporary tensors, and logits kept for metrics.

Of Hugging Face's evaluation loop each data-parallel rank gathers the logits of all ranks and
concatenates them with those of earlier batches; both inputs still exist beside the result. Every
`eval_accumulation` batches the logits move to the host, or at the end of the loop if it is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tokmill.bill.activations.situation import Situation
from tokmill.bill.formula import Formula, Line
from tokmill.bill.states.optimizers import FP32_BYTES
from tokmill.bill.states.parallel import data_parallel
from tokmill.bill.states.precision import precision_of, scheme_of
from tokmill.settings.training import TrainingSettings

SEEN = "torch's MemTracker on fake tensors, transformers 5.23"

PROBABILITIES = Formula("loss: log-probabilities of all tokens", "q_loss * n * V", SEEN, "exact")
LOGITS_FORWARD = Formula(
    "logits, and their copy in the type of the loss", "q * n * V + q_loss * n * V", SEEN,
    "exact; they are one tensor where the types are equal",
)  # fmt: skip
LOGITS_ONCE = Formula("logits", "q_loss * n * V", SEEN, "exact")
LOSS_GRADIENTS = Formula(
    "loss backward: two tensors the size of the logits", "2 * q_loss * n * V", SEEN, "exact"
)
CAPPED_LOGITS = Formula("tanh of the capped logits", "q * n * V", SEEN, "exact")
FUSED_LOSS = Formula(
    "fused loss: a chunk's logits, gradients of the hidden states and of a trained head",
    "q * chunk * V + q * n * d + 2 * q * P_head",
    "Liger-Kernel, fused_linear_cross_entropy: chunks of n * d / V tokens, to a power of two",
    "not measured",
)
KERNEL_LOSS = Formula(
    "loss in a kernel: logits, their fp32 copy, and the gradient that replaces it, cast",
    "(2 * q + q_loss) * n * V",
    "Unsloth's and Liger-Kernel's cross entropy write gradients over the fp32 logits",
    "8.0 bytes a logit in runs of Llama-3-8B with LoRA on one A100 (fms-acceleration)",
)
PARALLEL_PROBABILITIES = Formula(
    "loss: probabilities in fp32, of a part of the vocabulary", "4 * n * V / t",
    "Korthikanti et al. 2022, section 4.3; loss_parallel of torch 2.13", "not measured",
)  # fmt: skip
PARALLEL_FORWARD = Formula(
    "logits, their fp32 copy, and the shifted copy", "q * n * V / t + 8 * n * V / t",
    "read from loss_parallel of torch 2.13", "not measured",
)  # fmt: skip
PARALLEL_GRADIENTS = Formula(
    "loss backward: three fp32 tensors the size of the logits", "12 * n * V / t",
    "read from loss_parallel of torch 2.13", "71.9 GiB published for Llama-3.1-70B: 8% below",
)  # fmt: skip
MEGATRON_GRADIENTS = Formula(
    "gradients of the logits", "q * n * V / t", "Megatron-LM's vocab_parallel_cross_entropy",
    "not measured",
)  # fmt: skip
MEGATRON_FUSED_GRADIENTS = Formula(
    "gradients of the logits: in fp32 and cast, beside the probabilities", "(4 + q) * n * V / t",
    "Megatron-LM's cross_entropy_loss_fusion (native): what torch.compile allocates for its "
    "calculate_gradients",
    "read in the generated code of megatron-core 0.16.1 on torch 2.13",
)  # fmt: skip
DPO = "trl 0.13 to 1.15, selective_log_softmax (trl 1.16 computes chunks of logits: --loss fused)"
DPO_ROWS = Formula(
    "reference model: log-probabilities of two sequences", "2 * q_loss * n * V / b", DPO, "exact"
)
DPO_GRADIENTS = Formula(
    "loss backward of DPO: three tensors the size of the logits", "3 * q_loss * n * V", DPO,
    "exact, with autocast 3% above MemTracker's peak",
)  # fmt: skip
DPO_GRADIENTS_16BIT = Formula(
    "loss backward of DPO: a tensor the size of the logits", "q_loss * n * V", DPO,
    "exact: log-probabilities are freed as their gradients are made",
)  # fmt: skip


_FORWARD = {
    "kernel": KERNEL_LOSS, "megatron": MEGATRON_GRADIENTS, "megatron-kernel": MEGATRON_GRADIENTS,
    "parallel": PARALLEL_FORWARD,
}  # fmt: skip
_BACKWARD = {
    "kernel": KERNEL_LOSS, "megatron": MEGATRON_GRADIENTS,
    "megatron-kernel": MEGATRON_FUSED_GRADIENTS, "parallel": PARALLEL_GRADIENTS,
    "full": LOSS_GRADIENTS,
}  # fmt: skip


def loss_lines(
    training: TrainingSettings, symbols: Mapping[str, float], *, capped: bool
) -> tuple[Line, ...]:
    """Return the tensors of logits and loss that are kept until the backward pass starts.

    The loss of Megatron, and torch's with a split sequence, are split over the vocabulary.
    """
    kind = _loss_kind(training)
    if kind in ("megatron", "megatron-kernel", "parallel"):
        return (PARALLEL_PROBABILITIES.line(symbols),)
    if kind in ("fused", "kernel"):
        return ()
    kept = (PROBABILITIES, CAPPED_LOGITS) if capped else (PROBABILITIES,)
    return tuple(formula.line(symbols) for formula in kept)


def reference_lines(training: TrainingSettings, symbols: Mapping[str, float]) -> tuple[Line, ...]:
    """Return what the reference model's forward pass (DPO) takes beside its logits.

    The logits of the trained model are kept then. 16-bit logits become log-probabilities sequence
    by sequence; of fp32 logits only a sum is taken.
    """
    in_16_bit = symbols["q_loss"] < FP32_BYTES
    rows = training.reference_model and in_16_bit and _loss_kind(training) == "full"
    return (DPO_ROWS.line(symbols),) if rows else ()


def _loss_kind(training: TrainingSettings) -> str:
    if training.framework == "megatron":
        return "megatron-kernel" if training.loss == "kernel" else "megatron"
    return "parallel" if training.sequence_parallel else training.loss


def forward_line(training: TrainingSettings, symbols: Mapping[str, float]) -> Line:
    """Return the temporary tensors of the loss at the end of the forward pass."""
    kind = _loss_kind(training)
    if kind == "fused":
        chunk = fused_chunk(symbols["n"], symbols["d"], symbols["V"])
        head = symbols["V"] * symbols["d"] if training.adapter == "none" else 0
        return FUSED_LOSS.line({**symbols, "chunk": chunk, "P_head": head})
    full = LOGITS_ONCE if symbols["q"] == symbols["q_loss"] else LOGITS_FORWARD
    return _FORWARD.get(kind, full).line(symbols)


def backward_line(training: TrainingSettings, symbols: Mapping[str, float]) -> Line:
    """Return the temporary tensors of the loss at the start of the backward pass."""
    kind = _loss_kind(training)
    if kind == "full" and training.reference_model:
        in_fp32 = symbols["q_loss"] == FP32_BYTES
        return (DPO_GRADIENTS if in_fp32 else DPO_GRADIENTS_16BIT).line(symbols)
    return forward_line(training, symbols) if kind == "fused" else _BACKWARD[kind].line(symbols)


def fused_chunk(tokens: float, hidden: float, vocabulary: float) -> int:
    """Return the tokens of a chunk: n d / V, rounded up to a power of two, at most n."""
    chunks = max(-(-vocabulary // hidden), 1)
    size = 1 << (int(-(-tokens // chunks)) - 1).bit_length()
    return min(int(tokens), size)


LOOP_SOURCE = "evaluation_loop of transformers 5.23, seen with torch's MemTracker on fake tensors"
LOOP_ERROR = "exact for one rank; assumes that an evaluation batch has the size of the micro batch"

EARLIER_LOGITS = Formula(
    "logits of earlier evaluation batches, for metrics", "q_logits * n * V * N * batches_held",
    LOOP_SOURCE, LOOP_ERROR,
)  # fmt: skip
JOINED_LOGITS = Formula(
    "logits of evaluation batches for metrics, and the same concatenated",
    "2 * q_logits * n * V * N * batches_held", LOOP_SOURCE, LOOP_ERROR,
)  # fmt: skip
HOST_LOGITS = Formula(
    "logits kept for metrics", "q_host * n * V * N * metric_batches * R",
    "EvalLoopContainer of transformers 5.23, measured: numpy arrays in fp32, from bf16 with a copy "
    "(4 + 2 B); those of earlier moves and the same concatenated (4 + 4 B); in every process",
    "exact for the loop; memory of compute_metrics itself is not modelled",
)  # fmt: skip


def _batches_at_once(training: TrainingSettings) -> int:
    """Return the number of evaluation batches whose logits are on the GPU at the same time."""
    return min(training.metric_batches, training.eval_accumulation or training.metric_batches)


def metrics_forward_lines(
    facts: Situation, training: TrainingSettings, symbols: Mapping[str, float]
) -> tuple[Line, ...]:
    """Return the logits when the loss of the last of these batches is computed.

    From the third batch on, a variable of the loop keeps a second copy of the batch before.
    """
    before = _batches_at_once(training) - 1
    held = EARLIER_LOGITS.line(_loop_symbols(facts, training, symbols, before + (before > 1)))
    # A fused loss computes no logits, but metrics need them.
    full = replace(training, loss="full")
    return held, *loss_lines(full, symbols, capped=False), forward_line(full, symbols)


def metrics_joined_lines(
    facts: Situation, training: TrainingSettings, symbols: Mapping[str, float]
) -> tuple[Line, ...]:
    """Return the logits when those of the last batch are concatenated with the others."""
    batches = _batches_at_once(training)
    formula = JOINED_LOGITS if batches > 1 else EARLIER_LOGITS
    return (formula.line(_loop_symbols(facts, training, symbols, batches)),)


def metrics_host_line(training: TrainingSettings, symbols: Mapping[str, float]) -> Line:
    """Return the logits in host RAM when the loop ends; `symbols` has n, V and R."""
    q = FP32_BYTES
    if 0 < training.eval_accumulation < training.metric_batches:
        q = 2 * FP32_BYTES
    elif precision_of(training) != "amp" and scheme_of(training).computed < FP32_BYTES:
        q = FP32_BYTES + scheme_of(training).computed
    own = {"q_host": q, "N": data_parallel(training), "metric_batches": training.metric_batches}
    return HOST_LOGITS.line({**symbols, **own})


def _loop_symbols(
    facts: Situation, training: TrainingSettings, symbols: Mapping[str, float], batches: int
) -> dict[str, float]:
    """Return the symbols; with autocast, accelerate converts the model's outputs to fp32."""
    q = FP32_BYTES if facts.autocast else facts.product
    return {**symbols, "q_logits": q, "N": data_parallel(training), "batches_held": batches}
