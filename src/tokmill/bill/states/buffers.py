"""Memory of parallel training besides the states: gathered weights, buckets, 16-bit casts."""

from __future__ import annotations

from collections import Counter

from tokmill.bill.formula import Formula, Line
from tokmill.bill.models.model import Model
from tokmill.bill.models.weight_types import PLAIN_BYTES
from tokmill.bill.states.parallel import RankTensor, state_ranks
from tokmill.bill.states.precision import SCHEMES, precision_of, scheme_of
from tokmill.bill.states.sharding import sharding_of
from tokmill.settings.training import TrainingSettings

UNITS_AT_ONCE = 2
"""Layers that FSDP holds whole: the one that computes and the one that is fetched."""
REDUCE_BUCKET = GATHER_BUCKET = 500_000_000
PREFETCH_BUCKET = 50_000_000
MAX_LIVE_PARAMETERS = 1_000_000_000
"""DeepSpeed's defaults, in elements."""

OVERLAPPED = 4.5
"""DeepSpeed's buckets with overlap_comm, as a multiple of their sizes: Hugging Face's guide."""

CASTS = Formula(
    "16-bit casts of weights (autocast)",
    "2 * P_cast",
    "PyTorch's autocast: casts of fp32 matrices and biases live until they are used again",
    "exact without checkpointing",
)
GATHERED_FSDP = Formula(
    "gathered layers (FSDP)",
    "q_computed * (units * P_unit + P_root)",
    "FSDP2: a layer and the next one; what is outside the layers stays whole until the end",
    "a quantized layer is counted as dequantized; lower bound: the outside is wrapped by itself",
)
GATHERED_ALL = Formula(
    "gathered weights (FSDP, until backward)",
    "q_computed * P_gathered",
    "FSDP's SHARD_GRAD_OP, FSDP2's reshard_after_forward=False: a layer stays gathered from its "
    "forward to its backward",
    "exact at the start of backward; a layer's part goes with its backward",
)
GATHERED_ZERO = Formula(
    "gathered modules (ZeRO-3)",
    "q_computed * P_live",
    "DeepSpeed keeps up to stage3_max_live_parameters, 1e9, gathered (Hugging Face's guide: 2 GB "
    "in 16 bit)",
    "lower bound: weight and gradient of the largest module, as DeepSpeed's estimators count; "
    "upper bound: its prefetch bucket and the largest module besides",
)
DEQUANTIZED = Formula(
    "a dequantized matrix",
    "q_computed * P_unit",
    "bitsandbytes and others: one matrix at a time becomes 16 bit",
    "by the code",
)
BUCKETS_DDP = Formula(
    "gradient buckets (DDP)",
    "q_gradient * P_trained",
    "PyTorch's DistributedDataParallel copies gradients to buckets unless gradient_as_bucket_view",
    "not measured; lower bound: they are views",
)
BUCKETS_ZERO = Formula(
    "communication buckets (DeepSpeed)",
    "q_trained * (reduce_bucket + gather_bucket)",
    "DeepSpeed's defaults, 5e8 elements each (ZeRO-3 gathers 5e7)",
    "lower bound: Hugging Face's auto sizes; upper bound: with overlap_comm 4.5 times both, 9 GB "
    "in 16 bit (Hugging Face's guide)",
)
BUCKETS_FSDP = Formula(
    "fp32 gradients of one layer (FSDP)",
    "4 * P_unit",
    "FSDP2 reduces and scatters the gradients of one layer",
    "upper bound: those of what is outside the layers at the same time",
)
FLAT = Formula(
    "flattened fp32 buffer",
    "4 * P_trained",
    "ZeRO (Rajbhandari et al. 2020), section 3.2: fused gradients; 6 GB for 1.5e9 parameters",
    "upper bound of libraries that fuse all; DeepSpeed's buckets have a constant size",
)


def flat_line(tensors: tuple[RankTensor, ...], training: TrainingSettings) -> Line | None:
    """Return the buffer of the gradients of all trained `tensors`, if asked for."""
    if not training.flat_buffer:
        return None
    return FLAT.line({"P_trained": sum(held.count for held in tensors)})


STREAMS_FSDP = Formula(
    "reserved for FSDP's streams",
    "q_gradient * P_trained / shards - made + q_computed * P_gathered",
    "torch's allocator keeps freed memory for the stream that took it; FSDP makes sharded "
    "gradients and gathers on streams of their own (torch/distributed/fsdp/_fully_shard)",
    "explains why torchtitan's runs on 8 and 128 GPUs differ by 15.4 GiB; lower bound: freed when "
    "memory is short",
)


def cast_line(
    model: Model, tensors: tuple[RankTensor, ...], training: TrainingSettings
) -> Line | None:
    """Return autocast's casts; None without it, or where sharded weights are gathered in 16 bit."""
    if precision_of(training) != "amp" or sharding_of(training).weights:
        return None
    used = sum(held.count for held in tensors if _is_multiplied(held))
    if model.tied and training.pipeline_parallel == 1:
        used += sum(held.count for held in tensors if _is_table_of_ids(held))
    return CASTS.line({"P_cast": used})


def _is_multiplied(held: RankTensor) -> bool:
    tensor = held.tensor
    # Autocast casts no grouped product of experts.
    bias = tensor.name.endswith("bias") and tensor.module not in ("norm", "experts")
    return _is_fp32(held) and (tensor.kind == "linear" or bias)


def _is_table_of_ids(held: RankTensor) -> bool:
    tensor = held.tensor
    return _is_fp32(held) and tensor.kind == "embedding" and tensor.split == "vocabulary"


def _is_fp32(held: RankTensor) -> bool:
    return held.weight_bytes == PLAIN_BYTES["fp32"]


def gathered_line(tensors: tuple[RankTensor, ...], training: TrainingSettings) -> Line | None:
    """Return the weights that are made whole while a layer computes."""
    computed = SCHEMES[precision_of(training)].computed
    if training.sharding == "fsdp-grad-op":
        gathered = sum(held.count for held in tensors)
        return GATHERED_ALL.line({"q_computed": computed, "P_gathered": gathered})
    if training.sharding == "fsdp":
        layer, root = _largest_layer(tensors), _outside_layers(tensors)
        symbols = {"q_computed": computed, "units": UNITS_AT_ONCE, "P_unit": layer, "P_root": root}
        return GATHERED_FSDP.line(symbols, low_bytes=computed * UNITS_AT_ONCE * layer)
    if training.sharding == "zero-3":
        return _live_line(tensors, computed)
    small = [held.size for held in tensors if held.weight_bytes < PLAIN_BYTES["bf16"]]
    return DEQUANTIZED.line({"q_computed": computed, "P_unit": max(small)}) if small else None


def _live_line(tensors: tuple[RankTensor, ...], computed: int) -> Line:
    largest, there = max(held.size for held in tensors), sum(held.count for held in tensors)
    at_most = min(there, MAX_LIVE_PARAMETERS + PREFETCH_BUCKET) + largest
    return GATHERED_ZERO.line(
        {"q_computed": computed, "P_live": max(2 * largest, min(there, MAX_LIVE_PARAMETERS))},
        low_bytes=2 * computed * largest,
        high_bytes=computed * at_most,
    )


def bucket_line(tensors: tuple[RankTensor, ...], training: TrainingSettings) -> Line | None:
    """Return the buffers of communication of the trained `tensors`.

    Megatron-LM's gradients lie in its buckets from the start.
    """
    scheme, trained = scheme_of(training), sum(held.count for held in tensors)
    program = sharding_of(training).program
    if program == "fsdp":
        layer, root = _largest_layer(tensors), _outside_layers(tensors)
        return BUCKETS_FSDP.line({"P_unit": layer}, high_bytes=4 * (layer + root))
    if program == "deepspeed":
        gather = PREFETCH_BUCKET if training.sharding == "zero-3" else GATHER_BUCKET
        symbols = {
            "q_trained": scheme.weight,
            "reduce_bucket": REDUCE_BUCKET,
            "gather_bucket": min(gather, trained),
        }
        at_most = round(OVERLAPPED * BUCKETS_ZERO.evaluate(symbols))
        return BUCKETS_ZERO.line(symbols, low_bytes=0, high_bytes=at_most)
    if program == "ddp" and state_ranks(training) > 1:
        symbols = {"q_gradient": scheme.gradient, "P_trained": trained}
        return BUCKETS_DDP.line(symbols, low_bytes=0)
    return None


def streams_line(
    tensors: tuple[RankTensor, ...], training: TrainingSettings, gradients: Line, made: int
) -> Line | None:
    """Return what the allocator keeps for FSDP's streams where `made` bytes of gradients exist."""
    if sharding_of(training).program != "fsdp" or state_ranks(training) == 1:
        return None
    symbols = {
        **gradients.symbols,
        "made": made,
        "q_computed": SCHEMES[precision_of(training)].computed,
        "P_gathered": max(_largest_layer(tensors), _outside_layers(tensors)),
    }
    return STREAMS_FSDP.line(symbols, low_bytes=0)


def _largest_layer(tensors: tuple[RankTensor, ...]) -> int:
    """Return the elements of the fullest layer, 0 without layers."""
    layers: Counter[int] = Counter()
    for held in tensors:
        for layer in held.layers or ():
            layers[layer] += held.size
    return max(layers.values(), default=0)


def _outside_layers(tensors: tuple[RankTensor, ...]) -> int:
    return sum(held.count for held in tensors if held.layers is None)
