"""GPU memory besides tensors: memory reserved by the allocator, and the CUDA context."""

from __future__ import annotations

from tokmill.memory.formula import Formula, Line

MIB = 1 << 20

FRAGMENTATION = Formula(
    "fragmentation",
    "0.04 * allocated",
    "torch's caching allocator: reserved less allocated; 3 to 5 % is common",
    "0 to 10 % here; ZeRO (section 3.2) reports out-of-memory with over 30 % free in extreme cases",
)
CUDA_CONTEXT = Formula(
    "CUDA context and libraries",
    "500 * 2 ** 20",
    "300 MiB with lazy loading to over 1 GB (pytorch issue 107667), per process, outside torch's "
    "allocator; workspaces of cuBLAS on top",
    "300 to 1,000 MiB",
)


def overhead_lines(allocated_bytes: int, high_bytes: int) -> tuple[Line, Line]:
    """Return fragmentation and context beside tensors of so many bytes, expected and at most."""
    return (
        FRAGMENTATION.line(
            {"allocated": allocated_bytes}, low_bytes=0, high_bytes=high_bytes // 10
        ),
        CUDA_CONTEXT.line({}, low_bytes=300 * MIB, high_bytes=1000 * MIB),
    )
