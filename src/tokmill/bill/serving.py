"""GPU memory of inference: weights, KV cache, the largest layer's activations, logits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tokmill.bill.formula import Bill, Formula, Line
from tokmill.bill.models.adapters import is_plain_linear
from tokmill.bill.models.model import UNCOUNTED, Model, Tensor
from tokmill.bill.models.weight_types import FILES, NOTES, PLAIN_BYTES, is_matrix, weight_bytes
from tokmill.bill.overhead import overhead_lines
from tokmill.bill.states.parallel import RankTensor, rank_tensors
from tokmill.errors import UsageError
from tokmill.settings.training import InferenceSettings, TrainingSettings
from tokmill.words import plural

WEIGHTS = Formula(
    "weights",
    "q_linear * P_linear + q_other * P_other + buffers",
    "every tensor once; quantized types apply to the matrices inside the layers, while "
    "embedding, head, router and norms stay 16 bit (bitsandbytes, GPTQ, AWQ, vLLM's fp8); GGUF: "
    "llama.cpp's blocks (ggml-common.h) and its type of each tensor (llama-quant.cpp)",
    "exact for fp32, bf16, fp16 and gpt-oss's mxfp4; AWQ, GPTQ, bitsandbytes, GGUF within 0.3% of "
    "published files, fp8 0.01%; Q2_K files of llama.cpp before 2024 are 10% larger",
)
PREFILL = Formula(
    "activations of a layer (prompt)",
    "n_prompt * q_other * (4 * d + g * f / t)",
    "tensors alive at once in Hugging Face's layers under no_grad, counted operation by operation",
    "-4 to 0% for llama, qwen, gemma, olmo2, phi, opt; gpt2 -9%; fused kernels hold less",
)
PREFILL_EXPERTS = Formula(
    PREFILL.name,
    "n_prompt * q_other * (4 * d + e * (d + g * m / t))",
    "Hugging Face's grouped experts under no_grad, counted operation by operation",
    "mixtral -2%, qwen3_moe -6%; more where routing is uneven",
)
PREFILL_MLA = Formula(
    PREFILL.name,
    "n_prompt * q_other * (4 * d + a / t * (4 * h_nope + 4 * r_rope + 2 * h_v))",
    "Hugging Face's DeepSeek modules, which expand the cache of a layer, counted operation by "
    "operation",
    "deepseek_v3 -2%; absorbed products of servers hold less",
)
PREFILL_POSITIONS = Formula(
    "learned positions of a prompt",
    "s ** 2 * max(50, 2 * q_other * a / t)",
    "T5's biases of scores under no_grad, counted operation by operation: 64-bit distances of all "
    "pairs of tokens, then a value for each head, and its copy for sdpa",
    "whole prompts: -4 to 15% for 2 to 64 heads",
)
LOGITS = Formula(
    "logits",
    "n_logits * V * (q_other + 4)",
    "the head's output, and its fp32 copy for sampling or the loss (transformers' generate)",
    "softmax of sampling adds 4 V a sequence",
)
DEQUANTIZED = Formula(
    "one dequantized matrix",
    "q_other * largest",
    "bitsandbytes' 4-bit product of more than one token: the matrix once more in 16 bit",
)

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
    "and vLLM; transformers 4 kept keys and values of every head",
    "exact against transformers' cache",
)

MISSING = "KV cache and activations"
_SPELT_OUT = ("gelu_new", "gelu_fast", "bloom_gelu")
"""Activation functions that need several operations; the others are one kernel."""


def inference_bill(model: Model, settings: InferenceSettings, *, context: int) -> Bill:
    """Return the memory of one GPU that serves the model, in bytes.

    `context` is the default of the tokens per sequence, prompt and answer.

    Raises:
        UsageError: there is no context, or the GPUs cannot share the heads.
    """
    tokens = settings.context or context
    if tokens < 1:
        raise UsageError(f"context: expected at least 1 token, found {tokens}; give --context")
    _check_gpus(model, settings)
    weights = weight_line(model, settings)
    lines = [weights]
    if model.has_shape:
        lines += kv_cache_lines(model, settings, tokens)
        lines += _temporary_lines(model, settings, tokens)
    allocated = sum(line.n_bytes for line in lines)
    # Weights are loaded once and stay, so they are not fragmented.
    passing = sum(line.high_bytes for line in lines) - weights.high_bytes
    lines += overhead_lines(allocated, passing)
    title = f"GPU memory, inference: {settings.batch} x {plural(tokens, 'token')}"
    missing = "; ".join(each for each in model.leaves_out if each in UNCOUNTED)
    missing = missing if model.has_shape else MISSING
    return Bill(title, tuple(lines), _leaves_out(model, settings), missing)


def _check_gpus(model: Model, settings: InferenceSettings) -> None:
    """Check that the GPUs can share the model's heads."""
    gpus, heads, kv_heads = settings.serving_gpus, model.attention.heads, model.attention.kv_heads
    if heads % gpus:
        raise UsageError(
            f"serving_gpus: expected a divisor of the model's {plural(heads, 'head')}, found {gpus}"
        )
    if kv_heads % gpus and gpus % kv_heads:
        raise UsageError(
            f"serving_gpus: expected a divisor or multiple of the model's {kv_heads} "
            f"key-value heads, found {gpus}"
        )


def weight_line(model: Model, settings: InferenceSettings) -> Line:
    """Return the weights of one GPU, in bytes."""
    on_gpu = _tensors_of_one_gpu(model, settings)
    symbols: dict[str, float] = {"buffers": model.buffer_bytes}
    for name, matrices in (("linear", True), ("other", False)):
        part = [each for each in on_gpu if is_matrix(each.tensor) == matrices]
        symbols[f"P_{name}"] = elements = sum(each.count for each in part)
        n_bytes = sum(each.count * _bytes_of(each.tensor, model, settings) for each in part)
        symbols[f"q_{name}"] = n_bytes / elements if elements else 0.0
    note = NOTES.get(settings.weight_type, "")
    if settings.weight_type == "auto" and model.stored:
        note = model.stored.note
    return WEIGHTS.line(symbols, note=note)


def _tensors_of_one_gpu(model: Model, settings: InferenceSettings) -> tuple[RankTensor, ...]:
    """Return the tensors on a GPU; tensor-parallel training splits them in the same way."""
    gpus = settings.serving_gpus
    return rank_tensors(model, TrainingSettings(gpus=gpus, tensor_parallel=gpus))


def _bytes_of(tensor: Tensor, model: Model, settings: InferenceSettings) -> float:
    if settings.weight_type == "auto":
        return tensor.stored_bytes or PLAIN_BYTES["bf16"]
    return weight_bytes(settings.weight_type, tensor, model)


def kv_cache_lines(model: Model, settings: InferenceSettings, context: int) -> tuple[Line, ...]:
    """Return the cache of one GPU, in bytes: one line per number of tokens that layers keep.

    A sliding layer keeps its window; a paged cache keeps full blocks. Encoder layers have no cache;
    decoder layers that attend to them also cache keys and values of the encoder's tokens.
    """
    shape = model.attention
    symbols: dict[str, float] = {
        "b": settings.batch, "h": shape.head_dim, "k": shape.kv_heads,
        "q_kv": KV_BYTES[settings.kv_type], "r_kv": shape.kv_rank, "r_rope": shape.rope_dim,
        "t": settings.serving_gpus,
    }  # fmt: skip
    fewer = settings.serving_gpus > shape.kv_heads and not shape.kv_rank
    note = "key-value heads are replicated: there are fewer than GPUs" if fewer else ""
    lines = []
    for formula, tokens, n_layers in _kept(model, settings, context):
        symbols = {**symbols, "L_kv": n_layers, "tokens": tokens}
        residual = {**symbols, "tokens": min(tokens, _RESIDUAL_TOKENS), "q_kv": 2.0}
        is_integer = settings.kv_type.startswith("int")
        most = {**symbols, "k": shape.heads} if model.style.repeated else symbols
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
    for tokens, n_layers in sorted(Counter(-(-n // block) * block for n in kept).items()):
        formula = KV_CACHE_WINDOW if tokens < context else KV_CACHE
        if model.attention.kv_rank:
            formula = KV_CACHE_MLA
        yield formula, tokens, n_layers
    if model.cross_layers:
        yield KV_CACHE_CROSS, -(-context // block) * block, model.cross_layers


def _temporary_lines(model: Model, settings: InferenceSettings, context: int) -> Iterator[Line]:
    """Yield activations of a layer, logits, and one dequantized matrix."""
    n_prompt = prompt_tokens(settings, context)
    only_last = settings.logits == "last" and model.decoder_layers > 0
    attention, experts = model.attention, model.experts
    symbols: dict[str, float] = {
        "V": model.outputs, "a": attention.heads, "d": model.hidden,
        "e": experts.active if experts else 0, "f": model.ffn, "h_nope": attention.nope_dim,
        "h_v": attention.value_dim, "m": experts.ffn if experts else 0,
        "n_logits": settings.batch if only_last else n_prompt, "n_prompt": n_prompt,
        "q_other": 4 if settings.weight_type == "fp32" else 2, "r_rope": attention.rope_dim,
        "s": context, "t": settings.serving_gpus,
    }  # fmt: skip
    yield _prefill_line(model, symbols)
    if model.style.position_bias:
        yield PREFILL_POSITIONS.line(symbols)
    softmax = 4 * settings.batch * model.outputs
    yield LOGITS.line(symbols, high_bytes=LOGITS.evaluate(symbols) + softmax)
    stored = model.stored.kind if model.stored else "bf16"
    kind = stored if settings.weight_type == "auto" else settings.weight_type
    if kind.startswith("nf4"):
        on_gpu = _tensors_of_one_gpu(model, settings)
        largest = max(each.size for each in on_gpu if is_plain_linear(each.tensor))
        yield DEQUANTIZED.line({**symbols, "largest": largest})


def prompt_tokens(settings: InferenceSettings, context: int) -> int:
    """Return the prompt tokens of one forward pass: a chunk, as servers do it, or all."""
    return min(settings.prefill_chunk or settings.batch * context, settings.batch * context)


def _prefill_line(model: Model, symbols: dict[str, float]) -> Line:
    """Return the activations of the part of a layer that needs most."""
    parts = [(PREFILL, _widths_alive(model))]
    if model.experts is not None:
        parts.append((PREFILL_EXPERTS, 9 if model.style.clamped else 4))
    if model.attention.kv_rank:
        parts.append((PREFILL_MLA, 0))
    formula, symbols = max(
        ((formula, {**symbols, "g": widths}) for formula, widths in parts),
        key=lambda each: each[0].evaluate({**each[1], "n_prompt": 1}),
    )
    return formula.line(
        symbols,
        high_bytes=round(1.1 * formula.evaluate(symbols)),
        note=f"{symbols['n_prompt']:,} prompt tokens at once",
    )


def _widths_alive(model: Model) -> int:
    """Return how many tensors of the feed-forward width are alive at once in a layer."""
    if model.style.gated and model.style.inputs[1] == 1:
        return 4  # the output of gate and up in one matrix, the activated gate, and their product
    plain = 4 if model.activation in _SPELT_OUT else 2
    return max(plain, 3) if model.style.gated else plain


def _leaves_out(model: Model, settings: InferenceSettings) -> tuple[str, ...]:
    """Return a text for each amount of memory that has no formula."""
    out = ["CUDA graphs, speculative decoding and a server's own pool (vLLM takes 90% of the GPU)"]
    if not model.has_shape and settings.weight_type in FILES:
        out.append(f"larger types of some tensors of a {settings.weight_type} file, 0 to 10%")
    if not model.has_shape:
        out.append(f"{MISSING}: the model's layers and widths are not known")
    if settings.serving_gpus > 1:
        out.append("communication buffers of the GPUs that share the model")
    if "sdpa" not in model.style.kernels:
        out.append(f"scores of eager attention, {model.family}'s default in Hugging Face (b a s^2)")
    if model.experts is not None:
        out.append("uneven routing: experts that get more tokens than others")
    return (*model.leaves_out, *out)
