"""Memory of training beside the states: gathered weights, buckets, 16-bit casts of weights."""

from __future__ import annotations

import math
from collections import Counter

from tokmill.bill.formula import Formula, Line
from tokmill.bill.models.model import Model, Tensor
from tokmill.bill.models.weight_types import PLAIN_BYTES
from tokmill.bill.states.parallel import RankTensor, count_among, sharding_of, state_ranks
from tokmill.bill.states.precision import SCHEMES, precision_of, scheme_of
from tokmill.settings.training import TrainingSettings

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
    "units * unit + outside + matrix",
    "FSDP: a layer and the next one, in backward none beside the first, and no layer beside the "
    "head; weights outside the layers stay gathered until the end (FSDP2: the head while it is "
    "used, as torchtune and torchtitan wrap it); quantized weights as stored, one matrix of them "
    "dequantized",
    "Llama-3-8B with LoRA under FSDP1: within 0.2%; bounds: modules outside the layers are wrapped "
    "alone, or not",
)
GATHERED_ZERO = Formula(
    "gathered modules (ZeRO-3)",
    "q_computed * P_live",
    "DeepSpeed keeps up to stage3_max_live_parameters, 1e9, gathered (Hugging Face's guide: 2 GB "
    "in 16 bit)",
    "lower bound: weight and gradient of the largest module, as DeepSpeed's estimators count; "
    "upper bound: also its prefetch bucket and the largest module",
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
    "upper bound: at the same time those of the weights outside the layers",
)
FLAT = Formula(
    "flattened fp32 buffer",
    "4 * P_trained",
    "ZeRO (Rajbhandari et al. 2020), section 3.2: fused gradients; 6 GB for 1.5e9 parameters",
    "upper bound, for libraries that fuse all; DeepSpeed's buckets have a constant size",
)
STREAMS_FSDP = Formula(
    "reserved for FSDP's streams",
    "q_gradient * P_trained / shards - made + max(unit, module)",
    "torch's allocator keeps freed memory for the stream that took it; FSDP makes sharded "
    "gradients and gathers on streams of their own (torch/distributed/fsdp/_fully_shard)",
    "explains why torchtitan's runs on 8 and 128 GPUs differ by 15.4 GiB; lower bound: freed when "
    "memory is short",
)


def cast_line(
    model: Model, tensors: tuple[RankTensor, ...], training: TrainingSettings
) -> Line | None:
    """Return autocast's casts; None without autocast, or if weights are gathered in 16 bit."""
    if precision_of(training) != "amp" or sharding_of(training).weights:
        return None
    with_table = model.tied and training.pipeline_parallel == 1
    wide = [share for share in tensors if share.weight_bytes == PLAIN_BYTES["fp32"]]
    used = (share for share in wide if _is_multiplied(share.tensor, with_table=with_table))
    return CASTS.line({"P_cast": count_among(used, 1)})


def _is_multiplied(tensor: Tensor, *, with_table: bool) -> bool:
    """Return whether a product takes a tensor; that of the head takes a tied table of ids."""
    # Autocast casts no grouped product of experts.
    bias = tensor.name.endswith("bias") and tensor.module not in ("norm", "experts")
    table = with_table and tensor.kind == "embedding" and tensor.split == "vocabulary"
    return tensor.kind == "linear" or bias or table


def gathered_line(
    tensors: tuple[RankTensor, ...], training: TrainingSettings, units: int = 2
) -> Line | None:
    """Return the weights that are gathered or dequantized while a layer computes.

    `units`: layers that FSDP has gathered; 0: the head computes.
    """
    computed = SCHEMES[precision_of(training)].computed
    if sharding_of(training).program == "fsdp":
        return _layers_line(tensors, training, computed, units)
    if training.sharding == "zero-3":
        return _live_line(tensors, computed)
    small = _largest_quantized(tensors)
    return DEQUANTIZED.line({"q_computed": computed, "P_unit": small}) if small else None


def _layers_line(
    tensors: tuple[RankTensor, ...], training: TrainingSettings, computed: int, units: int
) -> Line:
    """Return the layers that FSDP has gathered, and what it gathers outside of them."""
    whole = computed * _outside_layers(tensors)
    alone = 0 if units else computed * _largest_outside(tensors)
    symbols = {
        "units": units,
        "unit": _largest_layer(tensors, computed),
        "outside": alone if training.sharding == "fsdp2" else whole,
        "matrix": computed * _largest_quantized(tensors) if units else 0,
    }
    low, high = (GATHERED_FSDP.evaluate({**symbols, "outside": n}) for n in (alone, whole))
    return GATHERED_FSDP.line(symbols, low_bytes=low, high_bytes=high)


def _live_line(tensors: tuple[RankTensor, ...], computed: int) -> Line:
    largest, every = max(share.size for share in tensors), count_among(tensors, 1)
    at_most = min(every, MAX_LIVE_PARAMETERS + PREFETCH_BUCKET) + largest
    return GATHERED_ZERO.line(
        {"q_computed": computed, "P_live": max(2 * largest, min(every, MAX_LIVE_PARAMETERS))},
        low_bytes=2 * computed * largest,
        high_bytes=computed * at_most,
    )


def bucket_line(tensors: tuple[RankTensor, ...], training: TrainingSettings) -> Line | None:
    """Return the buffers that communicate gradients of the trained `tensors`.

    None for Megatron-LM, whose gradients are in its buckets from the start.
    """
    scheme, trained = scheme_of(training), count_among(tensors, 1)
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
    """Return memory that the allocator reserves for FSDP2's streams; FSDP1's is in its share.

    `made`: bytes of the gradients that exist at this moment.
    """
    if training.sharding != "fsdp2" or state_ranks(training) == 1:
        return None
    computed = SCHEMES[precision_of(training)].computed
    symbols = {
        **gradients.symbols,
        "made": made,
        "unit": _largest_layer(tensors, computed),
        "module": computed * _largest_outside(tensors),
    }
    return STREAMS_FSDP.line(symbols, low_bytes=0)


def _largest_layer(tensors: tuple[RankTensor, ...], computed: int = 1) -> int:
    """Return the bytes of the largest layer, 0 without layers; of a quantized matrix as stored.

    Others have `computed` bytes an element, by default 1: the number of elements.
    """
    layers: Counter[int] = Counter()
    for share in tensors:
        is_packed = computed > 1 and share.weight_bytes < PLAIN_BYTES["bf16"]
        size = round(share.size * (share.weight_bytes if is_packed else computed))
        for layer in share.layers or ():
            layers[layer] += size
    return max(layers.values(), default=0)


def _largest_quantized(tensors: tuple[RankTensor, ...]) -> int:
    """Return the elements of the largest quantized matrix; stacked experts are one each."""
    small = [share for share in tensors if share.weight_bytes < PLAIN_BYTES["bf16"]]
    return max((math.prod(share.shape[-2:]) for share in small), default=0)


def _largest_outside(tensors: tuple[RankTensor, ...]) -> int:
    return max((share.size for share in tensors if share.layers is None), default=0)


def _outside_layers(tensors: tuple[RankTensor, ...]) -> int:
    return count_among((share for share in tensors if share.layers is None), 1)
