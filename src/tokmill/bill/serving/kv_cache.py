"""The KV cache of inference: keys and values that each layer keeps of earlier tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tokmill.bill.formula import Formula, Line
from tokmill.bill.models.model import Model
from tokmill.settings.inference import InferenceSettings

KV_BYTES = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1 + 2 / 32,
    "int4": 0.5 + 2 / 32,
}
"""Bytes per element with scales. fp8 has one scale per tensor (vLLM); int8 and int4 have a 16-bit
scale per 32 elements (llama.cpp's q8_0, q4_0), as much as scale and zero point per 64 (Hugging
Face's QuantizedCache, q_group_size)."""

_RESIDUAL_TOKENS = 128
"""Tokens that Hugging Face's QuantizedCache keeps in 16 bit (residual_length)."""

KV_CACHE = Formula(
    "KV cache",
    "2 * L_kv * ceil(k / t) * h * tokens * b * q_kv",
    "keys and values of every key-value head; a head is not split over GPUs, so fewer heads than "
    "GPUs are replicated (vLLM, Megatron)",
    "exact for full layers of Hugging Face's cache, which keeps one token less of a window; "
    "servers keep one block more; upper bound: every query head's (Hugging Face's Falcon 40B)",
)
KV_CACHE_WINDOW = Formula(
    "KV cache, sliding layers",
    KV_CACHE.expression,
    "the same; a layer with a sliding window keeps its window and no more (Hugging Face's cache, "
    "vLLM's hybrid manager, llama.cpp without --swa-full)",
    "a server that ignores windows keeps all tokens in every layer",
)
KV_CACHE_CROSS = Formula(
    "KV cache, cross-attention",
    KV_CACHE.expression,
    "a decoder's keys and values of the encoder's tokens (Hugging Face's EncoderDecoderCache)",
    "exact for a source as long as the context",
)
KV_CACHE_MLA = Formula(
    "KV cache, compressed",
    "L_kv * (r_kv + r_rope) * tokens * b * q_kv",
    "DeepSeek-V2, section 2.1: one vector for all heads, not split over GPUs; as in transformers 5 "
    "and vLLM",
    "exact against transformers' cache",
)
KV_CACHE_MLA_EXPANDED = Formula(
    "KV cache, expanded",
    "L_kv * a / t * (h_nope + r_rope + h_v) * tokens * b * q_kv",
    "keys and values of every head, as transformers 4 and DeepSeek's first code keep them",
)


def kv_cache_lines(model: Model, settings: InferenceSettings, context: int) -> tuple[Line, ...]:
    """Return the cache of one GPU, in bytes: one line per number of tokens that layers keep.

    A sliding layer keeps its window; a paged cache keeps full blocks. Encoder layers have no cache;
    decoder layers that attend to them also cache keys and values of the encoder's tokens.
    """
    shape = model.attention
    symbols: dict[str, float] = {
        "a": shape.heads, "b": settings.batch, "h": shape.head_dim, "h_nope": shape.nope_dim,
        "h_v": shape.value_dim, "k": shape.kv_heads, "q_kv": KV_BYTES[settings.kv_type],
        "r_kv": shape.kv_rank, "r_rope": shape.rope_dim, "t": settings.serving_gpus,
    }  # fmt: skip
    fewer = settings.serving_gpus > shape.kv_heads and not shape.kv_rank
    note = "key-value heads are replicated: there are fewer than GPUs" if fewer else ""
    lines = []
    for formula, tokens, n_layers in _kept(model, settings, context):
        symbols = {**symbols, "L_kv": n_layers, "tokens": tokens}
        residual = {**symbols, "tokens": min(tokens, _RESIDUAL_TOKENS), "q_kv": 2.0}
        is_integer = settings.kv_type.startswith("int")
        most = {**symbols, "k": symbols["a"]} if model.style.repeated else symbols
        high = formula.evaluate(most) + (formula.evaluate(residual) if is_integer else 0)
        lines.append(formula.line(symbols, high_bytes=high, note=note))
    return tuple(lines)


def _kept(
    model: Model, settings: InferenceSettings, context: int
) -> Iterator[tuple[Formula, int, int]]:
    """Yield the formula of layers, the tokens that each of them keeps, and their number."""
    block = settings.kv_block or 1
    windows = model.attention.windows or (0,) * model.decoder_layers
    kept = (min(window or context, context) for window in windows)
    compressed = settings.mla_cache == "compressed"
    for tokens, n_layers in sorted(Counter(-(-n // block) * block for n in kept).items()):
        formula = KV_CACHE_WINDOW if tokens < context else KV_CACHE
        if model.attention.kv_rank:
            formula = KV_CACHE_MLA if compressed else KV_CACHE_MLA_EXPANDED
        yield formula, tokens, n_layers
    if model.cross_layers:
        yield KV_CACHE_CROSS, -(-context // block) * block, model.cross_layers
