"""GPU memory beside the tensors: workspaces of cuBLAS, fragmentation, the CUDA context."""

from __future__ import annotations

from tokmill.bill.formula import Formula, Line
from tokmill.bill.states.parallel import sharding_of
from tokmill.settings.training import TrainingSettings

MIB = 1 << 20
LOGITS_BYTES = 5
"""Bytes per logit that the allocator holds beside the tensors, at the upper bound twice as many."""

FRAGMENTATION = Formula(
    "fragmentation",
    "share * allocated + split_logits",
    "torch's caching allocator: reserved less allocated. Fitted to nvidia-smi of 110 runs on A100 "
    "(fms-acceleration): one GPU 4%, with adapters 7%; FSDP1 42%, with adapters 21%; with "
    "adapters and recomputed layers also 5 bytes a logit, whose freed blocks they split. With "
    "expandable segments 4% (torchtitan: 2 to 10%)",
    "upper bound: --fragmentation, by default 0.3 of allocated, twice that under FSDP1, and twice "
    "the blocks of logits. GMLake (2024) found 15% of reserved memory on average and 33% at most, "
    "STWeaver (2025) 43% with interleaved pipelines; ZeRO (section 3.2) over 30%",
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
HOPPER_AND_NEWER = ("H100", "H200", "H20", "H800", "GH200", "B200")


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


def overhead_lines(
    allocated_bytes: int,
    high_bytes: int,
    training: TrainingSettings | None = None,
    logits: float = 0,
) -> tuple[Line, Line]:
    """Return fragmentation and CUDA context beside tensors, which need `high_bytes` at most.

    `training`: None for inference. `logits` is the number of elements of the logits.
    """
    training = training or TrainingSettings()
    program, at_most = sharding_of(training).program, training.fragmentation
    is_frozen, recomputed = training.adapter != "none", training.checkpointing != "none"
    split = is_frozen and recomputed and training.loss != "fused" and at_most > 0
    blocks = LOGITS_BYTES * logits if split else 0
    share = 0.07 if is_frozen else 0.04
    if program == "megatron" or training.sharding == "fsdp2":
        share, blocks = 0.04, 0
    elif program == "fsdp":
        share, at_most = (0.21 if is_frozen else 0.42), 2 * at_most
    symbols = {"share": min(share, at_most), "allocated": allocated_bytes, "split_logits": blocks}
    high = round(at_most * high_bytes + 2 * blocks)
    return (
        FRAGMENTATION.line(symbols, low_bytes=0, high_bytes=high),
        CUDA_CONTEXT.line({}, low_bytes=300 * MIB, high_bytes=1000 * MIB),
    )
