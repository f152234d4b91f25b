"""GPU memory beside the tensors: workspaces of cuBLAS, fragmentation, the CUDA context."""

from __future__ import annotations

from tokmill.bill.formula import Formula, Line

MIB = 1 << 20
FRAGMENTATION_AT_MOST = 0.3

FRAGMENTATION = Formula(
    "fragmentation",
    "0.04 * allocated",
    "torch's caching allocator: reserved less allocated; torchtitan's published runs have 2 to 3% "
    "(compiled) and 10% (eager), compressed-tensors measured 2.4%",
    "upper bound: --fragmentation, by default 0.3 of allocated, the rule of thumb of the field. "
    "It is for expandable_segments:True; without it GMLake (2024) found 15% of reserved memory on "
    "average and 33% at most (0.18 and 0.5 of allocated), torchtune issue 1185 0.5 of allocated, "
    "STWeaver (2025) 43% of reserved with interleaved pipelines; ZeRO (section 3.2) over 30%",
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
    allocated_bytes: int, fragmented_bytes: int, share: float = FRAGMENTATION_AT_MOST
) -> tuple[Line, Line]:
    """Return fragmentation and CUDA context beside tensors of `allocated_bytes`.

    The upper bound of fragmentation is `share` of `fragmented_bytes`, the upper bound of the
    tensors.
    """
    at_most = round(share * fragmented_bytes)
    return (
        FRAGMENTATION.line({"allocated": allocated_bytes}, low_bytes=0, high_bytes=at_most),
        CUDA_CONTEXT.line({}, low_bytes=300 * MIB, high_bytes=1000 * MIB),
    )
