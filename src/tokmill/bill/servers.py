"""Servers of models: what each takes of a GPU, and what it holds beside weights and cache.

A server that takes a share of the GPU at its start fills what is left of it with its KV cache, so
that a model fits if weights, activations and the cache of the users fit in the share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tokmill.bill.formula import Formula, Line
from tokmill.bill.gpus import Gpu
from tokmill.bill.models.model import Model
from tokmill.bill.models.weight_types import FILES
from tokmill.errors import UsageError
from tokmill.settings.training import BY_SERVER, InferenceSettings

GIB = 1 << 30
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Server:
    """A server and its defaults.

    Attributes:
        name: as people write it.
        shares: fraction of the GPU that it takes, by the number of GPUs from which it holds; ():
            what it needs, and no more.
        chunk: prompt tokens at once; 0: whole prompts.
        small_chunk: the same on GPUs of less than 70 GiB.
        profiled: sequences whose logits it computes at its start, to measure its need, on a large
            GPU; on others a quarter of them.
        only_cache: the share holds weights and cache alone; activations stay outside.
        kv_types: types of its KV cache that need less than 16 bit.
        graphs: it captures CUDA graphs.
        grows: its cache is copied to a longer one with each token.
        pads: its kernels pad experts of 4 bits (mxfp4).
        ahead: tokens of a chunk that a layer with a sliding window keeps beside the window.
        more: upper bound of what its log shows for weights and cache, relative to their sums: a
            table of positions, a padded vocabulary, one block more.
    """

    name: str
    shares: Mapping[int, float]
    chunk: int
    small_chunk: int
    kv_types: tuple[str, ...]
    profiled: int = 0
    only_cache: bool = False
    graphs: bool = False
    grows: bool = False
    pads: bool = False
    ahead: int = 0
    more: float = 1.0


SERVERS = {
    "vllm": Server(
        "vLLM", {1: 0.9}, 8192, 2048, ("fp8",), profiled=1024, graphs=True, pads=True,
        more=1.03,
    ),
    "sglang": Server(
        "SGLang", {1: 0.88, 2: 0.87, 4: 0.85, 8: 0.81}, 8192, 2048, ("fp8",),
        only_cache=True, graphs=True, pads=True, more=1.03,
    ),
    "transformers": Server("transformers", {}, 0, 0, ("int8", "int4"), grows=True),
    "llama.cpp": Server("llama.cpp", {}, 512, 512, ("int8", "int4"), ahead=512, more=1.01),
}  # fmt: skip
LARGE_GPU = 70 * GIB

GRAPHS = Formula(
    "CUDA graphs",
    "graphs * 2 ** 30",
    "vLLM and SGLang capture a graph for each of some sizes of a batch, after the cache is "
    "allocated; vLLM prints what they take",
    "0.3 to 2.5 GiB by the model and the sizes",
)
SHARED = Formula(
    "communication of GPUs",
    "shared * 2 ** 30",
    "NCCL's buffers and those of a server's own all-reduce, when GPUs share a model",
    "0.5 to 4 GiB: SGLang's cache of Qwen3-235B on 4 x H100 leaves 2 GiB beside weights and share",
)
GROWTH = Formula(
    "copies of the growing KV cache",
    "cache",
    "transformers joins each new token to a copy of the cache. Tuples of keys and values keep the "
    "copy before until the step ends; DynamicCache frees it layer by layer, but the allocator "
    "keeps blocks of earlier sizes: as much again for 7B at 2,048 tokens, in a replay of its rules",
    "Qwen's table of its models on A100: 0.9 to 1.3 times the cache in most rows, up to 3.6; upper "
    "bound: 1.5 times the cache and 4 GiB; a static cache has no copies",
)
PADDED = Formula(
    "padding of 4-bit experts",
    "padding * experts",
    "kernels for mxfp4 pad the experts' width to a multiple of 256 (Triton); gpt-oss-120b on H100: "
    "64.4 GiB of weights, 66.0 with Marlin's kernels",
    "upper bound: the hidden size too (Marlin)",
)
_MULTIPLE = 256


def server_of(settings: InferenceSettings) -> Server:
    """Return the server of settings: the one named, else the usual one for their types."""
    return SERVERS[server_name(settings)]


def server_name(settings: InferenceSettings) -> str:
    """Return the name of the server; for auto vLLM, if it can serve what is asked."""
    if settings.server != "auto":
        return settings.server
    if settings.weight_type in FILES or settings.host_experts:
        return "llama.cpp"
    whole_prompts = settings.prefill_chunk == 0 or settings.logits == "all"
    if whole_prompts or settings.weight_type.startswith("nf4"):
        return "transformers"
    return "llama.cpp" if settings.kv_type in ("int8", "int4") else "vllm"


def complete_serving(
    settings: InferenceSettings, *, context: int, gpu: Gpu | None
) -> InferenceSettings:
    """Return settings with server, its share, lengths and chunks filled in.

    `context` is the default of the tokens of a sequence. Completing them again changes nothing.

    Raises:
        UsageError: there is no context, or the server cannot do what is asked.
    """
    server = server_of(settings)
    tokens = context_of(settings, context)
    if tokens < 1:
        raise UsageError(f"context: expected at least 1 token, found {tokens}; give --context")
    if settings.kv_type in ("fp8", "int8", "int4") and settings.kv_type not in server.kv_types:
        raise UsageError(
            f"kv_type: {server.name} has no cache of {settings.kv_type}; choose "
            f"{' or '.join(server.kv_types)}, or another --server"
        )
    if settings.host_experts and server.name != "llama.cpp":
        raise UsageError(f"host_experts: {server.name} has none; choose --server=llama.cpp")
    large = gpu is None or gpu.memory_bytes >= LARGE_GPU
    chunk = server.chunk if large else server.small_chunk
    return replace(
        settings,
        server=server_name(settings),
        context=tokens,
        prompt=min(settings.prompt or max(1, tokens - settings.answer), tokens),
        prefill_chunk=chunk if settings.prefill_chunk == BY_SERVER else settings.prefill_chunk,
        gpu_share=settings.gpu_share or _share(server, settings.serving_gpus),
    )


def profiled_sequences(settings: InferenceSettings) -> int:
    """Return the sequences of the run in which the server of completed settings measures itself."""
    server = server_of(settings)
    return server.profiled if settings.prefill_chunk >= server.chunk else server.profiled // 4


def context_of(settings: InferenceSettings, otherwise: int) -> int:
    """Return the tokens of a sequence: the context, else prompt and answer, else `otherwise`."""
    return settings.context or settings.prompt + settings.answer or otherwise


def check_lengths(settings: InferenceSettings) -> None:
    """Check that prompt and answer fit in the context.

    Raises:
        UsageError: they are longer.
    """
    if 0 < settings.context < settings.prompt + settings.answer:
        raise UsageError(
            f"context: expected at least prompt and answer, tokens: {settings.prompt:,} + "
            f"{settings.answer:,}, found {settings.context:,}"
        )


def _share(server: Server, gpus: int) -> float:
    """Return the fraction of a GPU that a server takes by default; 1: what it needs."""
    shares = [share for least, share in server.shares.items() if gpus >= least]
    return shares[-1] if shares else 1.0


def padding_lines(
    model: Model, settings: InferenceSettings, experts_bytes: float
) -> tuple[Line, ...]:
    """Return what kernels add to the experts of a GPU, whose 4-bit weights take `experts_bytes`."""
    kind = (
        model.stored.kind
        if model.stored and settings.weight_type == "auto"
        else settings.weight_type
    )
    if kind != "mxfp4" or model.experts is None or not server_of(settings).pads:
        return ()
    width = _padded(model.experts.ffn)
    symbols = {"padding": width - 1, "experts": experts_bytes}
    most = {**symbols, "padding": width * _padded(model.hidden) - 1}
    return (PADDED.line(symbols, low_bytes=0, high_bytes=PADDED.evaluate(most)),)


def _padded(width: int) -> float:
    """Return a width rounded up to a multiple, as a factor."""
    return -(-width // _MULTIPLE) * _MULTIPLE / width


def server_lines(settings: InferenceSettings, cache_bytes: int) -> tuple[Line, ...]:
    """Return what a server holds beside weights, cache and activations, in bytes."""
    server, lines = server_of(settings), []
    if settings.serving_gpus > 1 and server.shares:
        least, most = round(0.5 * GIB), 4 * GIB
        lines.append(SHARED.line({"shared": 2}, low_bytes=least, high_bytes=most))
    if server.graphs and settings.graphs:
        lines.append(
            GRAPHS.line({"graphs": 1}, low_bytes=round(0.3 * GIB), high_bytes=round(2.5 * GIB))
        )
    if server.grows:
        most = round(1.5 * cache_bytes) + 4 * GIB
        lines.append(GROWTH.line({"cache": cache_bytes}, low_bytes=0, high_bytes=most))
    return tuple(lines)


def kept_free(settings: InferenceSettings, gpu: Gpu, outside: Iterable[Line]) -> int:
    """Return the bytes of a GPU that must stay free beside all lines of a bill.

    A server with a share must find all in it, but for the lines `outside`.
    """
    rest = (1 - settings.gpu_share) * gpu.memory_bytes
    return max(0, round(rest) - sum(line.n_bytes for line in outside))
