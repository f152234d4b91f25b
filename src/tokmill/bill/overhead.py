"""GPU memory beside the tensors: workspaces of cuBLAS, fragmentation, CUDA, NCCL."""

from __future__ import annotations

from tokmill.bill.formula import Formula, Line
from tokmill.bill.gpus import find_gpu
from tokmill.bill.states.parallel import state_ranks
from tokmill.settings.training import TrainingSettings

MIB = 1 << 20
SHARES = {
    "one GPU": 0.04,
    "one GPU, adapters": 0.07,
    "fsdp": 0.41,
    "fsdp, adapters": 0.22,
}
"""Fragmentation as a fraction of the tensors, by kind of training; `bench.gpu_measured` fits it."""
SEGMENTS_SHARE = 0.04
"""The same where the allocator's segments grow (torchtitan: 2 to 10%), and under Megatron-LM."""
LOGITS_BYTES = 6.8
"""Bytes per logit that the allocator holds beside the tensors, at the upper bound twice as many."""
LEAST_SHARE = 0.06
"""Of the tensors, so much cannot be given back when memory is short."""

_FITTED = (
    "torch's caching allocator: reserved less allocated. Fitted to 110 runs on A100 "
    "(fms-acceleration) and 17 on RTX 3090 (fsdp_qlora): one GPU 4%, with adapters 7%; FSDP1 41%, "
    "with adapters 22%; with adapters and recomputed layers, beside logits 6.8 bytes for each, "
    "whose freed blocks they split. With expandable segments 4% (torchtitan: 2 to 10%)"
)
_BOUND = (
    "upper bound: --fragmentation, by default 0.3 of allocated, twice that under FSDP1 if the GPU "
    "has room, and twice the blocks of logits. GMLake (2024) found 15% of reserved memory on "
    "average and 33% at most, STWeaver (2025) 43% with interleaved pipelines; ZeRO (section 3.2) "
    "over 30%"
)
FRAGMENTATION = Formula("fragmentation", "share * allocated + split_logits", _FITTED, _BOUND)
FRAGMENTATION_OF_GPU = Formula(
    FRAGMENTATION.name,
    f"max(min({FRAGMENTATION.expression}, room), least * allocated)",
    f"{_FITTED}. It takes the room that the GPU has left, and no more: before an allocation fails, "
    "the allocator gives back what it holds in addition, all but 6%",
    _BOUND,
)
CUDA_CONTEXT = Formula(
    "CUDA context and libraries",
    "500 * 2 ** 20",
    "300 MiB with lazy loading to over 1 GB (pytorch issue 107667), per process, outside torch's "
    "allocator",
    "300 to 1,000 MiB",
)
WORKSPACES = Formula(
    "workspaces of cuBLAS",
    "2 * workspace + workspace_te",
    "torch's allocator holds one for each thread that multiplies, forward's and autograd's: "
    "CUBLAS_WORKSPACE_CONFIG, by default :4096:2:16:8 (8,519,680 B), on Hopper 32 MiB; "
    "Transformer Engine's own is 4 MiB, on Hopper 32 MiB (Megatron)",
    "4 of Megatron-LM's functional tests: 68 and 96 MiB, which are these sums to 1 MiB; upper "
    "bound: Hopper's, and FlashAttention's fp32 sums of the queries' gradients",
)
NCCL = Formula(
    "buffers of NCCL",
    "groups * communicator",
    "a communicator for each group of GPUs, outside torch's allocator: on 4 A100 with NVLink 544 "
    "MiB for two GPUs, 688 MiB for more (nccl issue 964)",
    "100 MiB with few channels to 1.6 GB (nccl issue 864) for each group",
)
OUTSIDE = (CUDA_CONTEXT.name, NCCL.name)
"""Lines of memory that torch's allocator does not count."""
HOPPER_AND_NEWER = ("H100", "H200", "H20", "H800", "GH200", "B200", "B300")


def workspace_line(gpu: str, *, megatron: bool, attention_bytes: float) -> Line:
    """Return the workspaces of cuBLAS in training, on a GPU by its name ("" for any).

    `attention_bytes`: FlashAttention's fp32 gradients of the queries, for the upper bound.
    """
    small = {"workspace": 8_519_680, "workspace_te": 4 * MIB * megatron}
    large = {"workspace": 32 * MIB, "workspace_te": 32 * MIB * megatron}
    most = WORKSPACES.evaluate(large) + round(attention_bytes)
    newer = gpu.upper().removeprefix("NVIDIA ").startswith(HOPPER_AND_NEWER)
    least = WORKSPACES.evaluate(small)
    return WORKSPACES.line(large if newer else small, low_bytes=least, high_bytes=most)


def overhead_lines(allocated_bytes: int, high_bytes: int) -> tuple[Line, Line]:
    """Return fragmentation and CUDA context of inference.

    Of the tensors' `allocated_bytes`, `high_bytes` come and go at the most.
    """
    at_most = TrainingSettings().fragmentation
    share = SEGMENTS_SHARE
    symbols = {"share": share, "allocated": allocated_bytes, "split_logits": 0}
    high = round(at_most * high_bytes)
    return FRAGMENTATION.line(symbols, low_bytes=0, high_bytes=high), context_line()


def context_line() -> Line:
    """Return the memory of the CUDA context."""
    return CUDA_CONTEXT.line({}, low_bytes=300 * MIB, high_bytes=1000 * MIB)


def nccl_line(training: TrainingSettings) -> Line | None:
    """Return the buffers of NCCL on a GPU; None on one GPU."""
    degrees = (
        state_ranks(training),
        training.tensor_parallel,
        training.pipeline_parallel,
        training.context_parallel,
        training.expert_parallel,
    )
    groups = sum(degree > 1 for degree in degrees)
    if groups == 0:
        return None
    communicator = (544 if max(degrees) == 2 else 688) * MIB
    symbols = {"groups": groups, "communicator": communicator}
    high = round(groups * 1.6e9)
    return NCCL.line(symbols, low_bytes=groups * 100 * MIB, high_bytes=high)


def fragmentation_line(
    allocated: int, high: int, training: TrainingSettings, *, logits: float, outside: int
) -> Line:
    """Return fragmentation in training, in bytes.

    Args:
        allocated: bytes of the tensors.
        high: their upper bound.
        training: the settings.
        logits: elements of the logits, if they are there.
        outside: bytes of the GPU that neither tensors nor fragmentation can take.
    """
    at_most, fsdp1 = training.fragmentation, training.sharding == "fsdp"
    is_frozen, recomputed = training.adapter != "none", training.checkpointing != "none"
    blocks = 0.0
    splits = is_frozen and recomputed and training.loss != "fused"
    if splits and at_most > 0 and not has_segments(training):
        blocks = LOGITS_BYTES * logits
    share = min(_share(training), at_most)
    symbols = {"share": share, "allocated": allocated, "split_logits": blocks}
    most = round(at_most * (2 if fsdp1 else 1) * high + 2 * blocks)
    if not training.gpu:
        return FRAGMENTATION.line(symbols, low_bytes=0, high_bytes=most)
    room = find_gpu(training.gpu).memory_bytes - outside
    of_gpu = {"room": max(0, room - allocated), "least": min(LEAST_SHARE, share)}
    most = max(min(most, room - high), round(at_most * high))
    return FRAGMENTATION_OF_GPU.line(symbols | of_gpu, low_bytes=0, high_bytes=most)


def _share(training: TrainingSettings) -> float:
    """Return fragmentation as a fraction of the tensors."""
    return SEGMENTS_SHARE if has_segments(training) else SHARES[kind_of(training)]


def kind_of(training: TrainingSettings) -> str:
    """Return the kind of training in `SHARES`."""
    where = "fsdp" if training.sharding == "fsdp" else "one GPU"
    return where if training.adapter == "none" else f"{where}, adapters"


def has_segments(training: TrainingSettings) -> bool:
    """Return whether trainers with these settings use segments that grow, or allocate once."""
    return training.framework == "megatron" or training.sharding == "fsdp2"
