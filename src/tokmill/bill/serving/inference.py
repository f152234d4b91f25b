"""GPU memory of inference: weights, KV cache, the largest layer's activations, logits."""

from __future__ import annotations

from collections.abc import Iterator

from tokmill.bill.formula import Bill, Formula, Line
from tokmill.bill.models.adapters import is_plain_linear
from tokmill.bill.models.gguf import FILES
from tokmill.bill.models.model import Model, Tensor
from tokmill.bill.models.weight_types import NOTES, PLAIN_BYTES, is_matrix, weight_bytes
from tokmill.bill.overhead import overhead_lines
from tokmill.bill.serving.kv_cache import kv_cache_lines
from tokmill.bill.states.parallel import RankTensor, rank_tensors
from tokmill.errors import UsageError
from tokmill.settings.inference import InferenceSettings
from tokmill.settings.training import TrainingSettings

WEIGHTS = Formula(
    "weights",
    "q_linear * P_linear + q_other * P_other + buffers",
    "every tensor once; a quantized type holds for the matrices inside the layers, while "
    "embedding, head, router and norms stay 16 bit (bitsandbytes, GPTQ, AWQ, vLLM's fp8); GGUF: "
    "llama.cpp's blocks (ggml-common.h) and its type of each tensor (llama-quant.cpp)",
    "exact for fp32, bf16, fp16 and gpt-oss's mxfp4; AWQ, GPTQ, bitsandbytes, GGUF within 0.3 % of "
    "published files, fp8 0.01 %; Q2_K files of llama.cpp before 2024 are 10 % larger",
)
PREFILL = Formula(
    "activations of a layer (prompt)",
    "n_prompt * q_other * (4 * d + g * f / t)",
    "tensors alive at once in Hugging Face's layers under no_grad, counted operation by operation",
    "-4 to 0 % for llama, qwen, gemma, olmo2, phi, opt; gpt2 -9 %; fused kernels hold less",
)
PREFILL_EXPERTS = Formula(
    PREFILL.name,
    "n_prompt * q_other * (4 * d + e * (d + g * m / t))",
    "Hugging Face's grouped experts under no_grad, counted operation by operation",
    "mixtral -2 %, qwen3_moe -6 %; more where routing is uneven",
)
PREFILL_MLA = Formula(
    PREFILL.name,
    "n_prompt * q_other * (4 * d + a / t * (4 * h_nope + 4 * r_rope + 2 * h_v))",
    "Hugging Face's DeepSeek modules, which expand the cache of a layer, counted operation by "
    "operation",
    "deepseek_v3 -2 %; absorbed products of servers hold less",
)
PREFILL_POSITIONS = Formula(
    "learned positions of a prompt",
    "s ** 2 * max(50, 2 * q_other * a / t)",
    "T5's biases of scores under no_grad, counted operation by operation: 64-bit distances of all "
    "pairs of tokens, then a value for each head, and its copy for sdpa",
    "whole prompts: -4 to 15 % for 2 to 64 heads",
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

MISSING = "KV cache and activations"
_SPELT_OUT = ("gelu_new", "gelu_fast", "bloom_gelu")
"""Activations that are several operations; the others are one kernel."""
_PAGED_PROMPT_TOKENS = 8192
"""A paged server feeds prompts in chunks (vLLM's max_num_batched_tokens: 2,048 to 16,384)."""
_LEAST_PROMPT_TOKENS = 2048


def inference_bill(model: Model, settings: InferenceSettings, *, context: int) -> Bill:
    """Return the memory of one GPU that serves the model, in bytes.

    `context` is the tokens of a sequence, prompt and answer, where the settings say none.

    Raises:
        UsageError: no context, or heads that the GPUs cannot share.
    """
    tokens = settings.context or context
    if tokens < 1:
        raise UsageError(f"context: expected at least 1 token, found {tokens}; give --context")
    check_serving(model, settings)
    weights = weight_line(model, settings)
    lines: tuple[Line, ...] = (weights,)
    if model.has_shape:
        cache = kv_cache_lines(model, settings, tokens)
        lines = (weights, *cache, *_passing_lines(model, settings, tokens))
    allocated = sum(line.n_bytes for line in lines)
    # Weights are loaded once and stay: what comes and goes is fragmented.
    passing = sum(line.high_bytes for line in lines) - weights.high_bytes
    overhead = overhead_lines(allocated, passing)
    title = f"GPU memory, inference: {settings.batch} x {tokens:,} tokens"
    missing = "" if model.has_shape else MISSING
    return Bill(title, (*lines, *overhead), _leaves_out(model, settings), missing)


def check_serving(model: Model, settings: InferenceSettings) -> None:
    """Refuse GPUs that cannot share the model's heads.

    Raises:
        UsageError: query heads are not a multiple of the GPUs, or key-value heads and GPUs do not
            divide one another.
    """
    gpus, attention = settings.serving_gpus, model.attention
    if attention.heads % gpus:
        raise UsageError(
            f"serving_gpus: expected a divisor of the model's {attention.heads} heads, found {gpus}"
        )
    if attention.kv_heads % gpus and gpus % attention.kv_heads:
        raise UsageError(
            f"serving_gpus: expected a divisor or multiple of the model's {attention.kv_heads} "
            f"key-value heads, found {gpus}"
        )


def weight_line(model: Model, settings: InferenceSettings) -> Line:
    """Return the weights of one GPU, in the asked type where a type applies, in bytes."""
    parts: dict[str, list[RankTensor]] = {"linear": [], "other": []}
    for held in _tensors_of_one_gpu(model, settings):
        parts["linear" if is_matrix(held.tensor) else "other"].append(held)
    symbols: dict[str, float] = {"buffers": model.buffer_bytes}
    for name, part in parts.items():
        symbols[f"P_{name}"] = elements = sum(held.count for held in part)
        n_bytes = sum(held.count * _bytes_of(held.tensor, model, settings) for held in part)
        symbols[f"q_{name}"] = n_bytes / elements if elements else 0.0
    return WEIGHTS.line(symbols, note=_note(model, settings))


def _kind(model: Model, settings: InferenceSettings) -> str:
    """Return the type of the weights: as asked, as stored, or 16 bit."""
    if settings.weight_type != "auto":
        return settings.weight_type
    return model.stored.kind if model.stored else "bf16"


def _bytes_of(tensor: Tensor, model: Model, settings: InferenceSettings) -> float:
    if settings.weight_type == "auto":
        return tensor.stored_bytes or PLAIN_BYTES["bf16"]
    return weight_bytes(settings.weight_type, tensor, model)


def _note(model: Model, settings: InferenceSettings) -> str:
    if settings.weight_type == "auto" and model.stored:
        return model.stored.note
    return NOTES.get(settings.weight_type, "")


def _passing_lines(model: Model, settings: InferenceSettings, context: int) -> list[Line]:
    """Return temporary memory: activations of a layer, logits, one dequantized matrix."""
    all_tokens = settings.batch * context
    n_prompt = min(all_tokens, _PAGED_PROMPT_TOKENS) if settings.kv_block else all_tokens
    lines = [_prefill_line(model, settings, n_prompt, all_tokens)]
    if model.style.position_bias:
        lines.append(PREFILL_POSITIONS.line(_position_symbols(model, settings, context)))
    last = settings.logits == "last" and model.decoder_layers > 0
    n_logits = settings.batch if last else n_prompt
    q_other = _compute_bytes(settings)
    symbols = {"n_logits": n_logits, "V": model.outputs, "q_other": q_other}
    high = LOGITS.evaluate(symbols) + 4 * settings.batch * model.outputs
    lines.append(LOGITS.line(symbols, high_bytes=high))
    if _kind(model, settings).startswith("nf4"):
        held = _tensors_of_one_gpu(model, settings)
        largest = max(each.size for each in held if is_plain_linear(each.tensor))
        lines.append(DEQUANTIZED.line({"q_other": q_other, "largest": largest}))
    return lines


def _position_symbols(model: Model, settings: InferenceSettings, context: int) -> dict[str, float]:
    shape = {"s": context, "a": model.attention.heads, "t": settings.serving_gpus}
    return {**shape, "q_other": _compute_bytes(settings)}


def _prefill_line(model: Model, settings: InferenceSettings, n_prompt: int, n_all: int) -> Line:
    shape: dict[str, float] = {"q_other": _compute_bytes(settings), "t": settings.serving_gpus}
    formula, shape = max(
        ((formula, {**shape, **symbols}) for formula, symbols in _layers(model)),
        key=lambda each: each[0].evaluate({**each[1], "n_prompt": 1}),
    )
    least, most = min(n_prompt, _LEAST_PROMPT_TOKENS), n_all
    return formula.line(
        {**shape, "n_prompt": n_prompt},
        low_bytes=formula.evaluate({**shape, "n_prompt": least}),
        high_bytes=round(1.1 * formula.evaluate({**shape, "n_prompt": most})),
        note="prompts at once; less if fed in chunks",
    )


def _layers(model: Model) -> Iterator[tuple[Formula, dict[str, float]]]:
    """Yield what may be the most of a layer, with its symbols."""
    d, attention, experts = model.hidden, model.attention, model.experts
    yield PREFILL, {"d": d, "f": model.ffn, "g": _widths_alive(model)}
    if experts is not None:
        widths = 9 if model.style.clamped else 4
        yield PREFILL_EXPERTS, {"d": d, "e": experts.active, "m": experts.ffn, "g": widths}
    if attention.kv_rank:
        parts = {"h_nope": attention.nope_dim, "r_rope": attention.rope_dim}
        parts |= {"h_v": attention.value_dim, "a": attention.heads}
        yield PREFILL_MLA, {"d": d, **parts}


def _widths_alive(model: Model) -> int:
    """Return how many tensors of the feed-forward's width are alive at once in a layer."""
    if model.style.gated and model.style.inputs[1] == 1:
        return 4  # the fused product, and its two halves' activation and product
    plain = 4 if model.activation in _SPELT_OUT else 2
    return max(plain, 3) if model.style.gated else plain


def _tensors_of_one_gpu(model: Model, settings: InferenceSettings) -> tuple[RankTensor, ...]:
    """Return what a GPU holds: the same split as tensor-parallel training's."""
    gpus = settings.serving_gpus
    return rank_tensors(model, TrainingSettings(gpus=gpus, tensor_parallel=gpus))


def _compute_bytes(settings: InferenceSettings) -> int:
    return 4 if settings.weight_type == "fp32" else 2


def _leaves_out(model: Model, settings: InferenceSettings) -> tuple[str, ...]:
    out = ["CUDA graphs, speculative decoding and a server's own pool (vLLM takes 90 % of the GPU)"]
    if not model.has_shape and settings.weight_type in FILES:
        out.append(f"better types of some tensors of a {settings.weight_type} file, 0 to 10 %")
    if not model.has_shape:
        out.append(f"{MISSING}: the model's layers and widths are not known")
    if settings.serving_gpus > 1:
        out.append("communication buffers of the GPUs that share the model")
    if "sdpa" not in model.style.kernels:
        out.append(f"scores of eager attention, {model.family}'s default in Hugging Face (b a s^2)")
    if model.experts is not None:
        out.append("uneven routing: experts that get more tokens than others")
    return (*model.leaves_out, *out)
