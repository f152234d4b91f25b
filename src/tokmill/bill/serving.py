"""GPU memory of inference: weights, KV cache, the largest layer's activations, logits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from tokmill.bill.cache import GROWING, PREFILL_NAME, PREFILLS, caches
from tokmill.bill.formula import Bill, Formula, Line
from tokmill.bill.gpus import Gpu
from tokmill.bill.models.adapters import is_plain_linear
from tokmill.bill.models.model import UNCOUNTED, Model, Tensor
from tokmill.bill.models.weight_types import FILES, NOTES, PLAIN_BYTES, is_matrix, weight_bytes
from tokmill.bill.overhead import overhead_lines
from tokmill.bill.servers import (
    GRAPHS,
    complete_serving,
    kept_free,
    padding_lines,
    profiled_sequences,
    server_lines,
    server_of,
)
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
    PREFILL_NAME,
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

MISSING = "KV cache and activations"
_SPELT_OUT = ("gelu_new", "gelu_fast", "bloom_gelu")
"""Activation functions that need several operations; the others are one kernel."""


def inference_bill(
    model: Model, settings: InferenceSettings, *, context: int, gpu: Gpu | None = None
) -> Bill:
    """Return the memory of one GPU that serves the model, in bytes.

    `context` is the default of the tokens per sequence, prompt and answer. Without a `gpu`, nothing
    is kept free.

    Raises:
        UsageError: there is no context, the GPUs cannot share the heads, or the server cannot do
            what is asked.
    """
    settings = complete_serving(settings, context=context, gpu=gpu)
    _check_gpus(model, settings)
    weights = weight_line(model, settings)
    experts = sum(
        each.count * _bytes_of(each.tensor, model, settings)
        for each in _tensors_of_one_gpu(model, settings)
        if each.tensor.kind == "experts"
    )
    lines = [weights, *padding_lines(model, settings, experts)]
    cache: tuple[Line, ...] = ()
    temporary: tuple[Line, ...] = ()
    if model.has_shape:
        cache = kv_cache_lines(model, settings, settings.context)
        temporary = tuple(_temporary_lines(model, settings))
    more = server_lines(settings, sum(line.n_bytes for line in cache))
    # Weights are loaded once, and so is a cache: what comes and goes is fragmented.
    passing = sum(line.n_bytes for line in temporary)
    beside = overhead_lines(passing, sum(line.high_bytes for line in (*cache, *temporary)))
    free = 0
    if gpu is not None:
        outside = [line for line in more if line.name == GRAPHS.name]
        outside += [*temporary, *beside] if server_of(settings).only_cache else []
        free = kept_free(settings, gpu, outside)
    missing = "; ".join(each for each in model.leaves_out if each in UNCOUNTED)
    return Bill(
        f"GPU memory, inference: {settings.batch} x {plural(settings.context, 'token')}",
        (*lines, *cache, *temporary, *more, *beside),
        _leaves_out(model, settings),
        missing if model.has_shape else MISSING,
        kept_free=free,
    )


def room_tokens(bill: Bill, gpu: Gpu) -> int:
    """Return the tokens of all users whose cache a GPU has room for, 0 without a cache.

    They are those of the bill and what the rest of the GPU, or of the server's share, holds; of
    layers with a window, which keep no more, nothing is added.
    """
    per_token = 0.0
    tokens = 0
    for line in bill.lines:
        if line.name in GROWING:
            tokens = round(line.symbols["tokens"] * line.symbols["b"])
            per_token += line.n_bytes / tokens
    left = gpu.memory_bytes - bill.kept_free - bill.n_bytes
    return max(0, round(tokens + left / per_token)) if per_token else 0


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
    most = round(server_of(settings).more * WEIGHTS.evaluate(symbols))
    return WEIGHTS.line(symbols, high_bytes=most, note=note)


def _tensors_of_one_gpu(model: Model, settings: InferenceSettings) -> tuple[RankTensor, ...]:
    """Return the tensors on a GPU; tensor-parallel training splits them in the same way."""
    gpus = settings.serving_gpus
    tensors = rank_tensors(model, TrainingSettings(gpus=gpus, tensor_parallel=gpus))
    return tuple(each for each in map(partial(_on_gpu, settings), tensors) if each.count)


def _on_gpu(settings: InferenceSettings, share: RankTensor) -> RankTensor:
    """Return the part of a tensor on a GPU: without the experts that are in host RAM."""
    if share.tensor.kind != "experts" or not share.layers:
        return share
    return replace(share, layers=share.layers[settings.host_experts :])


def host_experts_bytes(model: Model, settings: InferenceSettings) -> int:
    """Return the bytes of the experts that are in host RAM."""
    if not settings.host_experts:
        return 0
    everywhere = replace(settings, host_experts=0, serving_gpus=1)
    on_host = [
        replace(each, layers=each.layers[: settings.host_experts])
        for each in _tensors_of_one_gpu(model, everywhere)
        if each.tensor.kind == "experts" and each.layers
    ]
    return round(sum(each.count * _bytes_of(each.tensor, model, settings) for each in on_host))


def _bytes_of(tensor: Tensor, model: Model, settings: InferenceSettings) -> float:
    if settings.weight_type == "auto":
        return tensor.stored_bytes or PLAIN_BYTES["bf16"]
    return weight_bytes(settings.weight_type, tensor, model)


def kv_cache_lines(model: Model, settings: InferenceSettings, context: int) -> tuple[Line, ...]:
    """Return the cache of one GPU, in bytes: one line per number of tokens that layers keep.

    A sliding layer keeps its window; a paged cache keeps full blocks. Encoder layers have no cache;
    decoder layers that attend to them also cache keys and values of the encoder's tokens.
    """
    lines = []
    server = server_of(settings)
    for cache in caches(model, context, settings.kv_block or 1, server.ahead):
        symbols = {
            **cache.sizes, "L_kv": cache.layers, "b": settings.batch, "t": settings.serving_gpus,
            "q_kv": KV_BYTES[settings.kv_type], "q_other": 2.0,
        }  # fmt: skip
        fewer = cache.is_split and settings.serving_gpus > cache.sizes["k"]
        note = "key-value heads are replicated: there are fewer than GPUs" if fewer else ""
        residual = {**symbols, "tokens": min(symbols.get("tokens", 0), _RESIDUAL_TOKENS)}
        is_integer = settings.kv_type.startswith("int") and "q_kv" in cache.formula.expression
        most = {**symbols, "k": cache.sizes["a"]} if model.style.repeated else symbols
        high = cache.formula.evaluate(most)
        high += cache.formula.evaluate({**residual, "q_kv": 2.0}) if is_integer else 0
        high = round(server.more * high)
        lines.append(cache.formula.line(symbols, high_bytes=high, note=note))
    return tuple(lines)


def _temporary_lines(model: Model, settings: InferenceSettings) -> Iterator[Line]:
    """Yield activations of a layer, logits, and one dequantized matrix."""
    n_prompt = prompt_tokens(settings)
    only_last = settings.logits == "last" and model.decoder_layers > 0
    attention, experts = model.attention, model.experts
    symbols: dict[str, float] = {
        "V": model.outputs, "a": attention.heads, "d": model.hidden,
        "e": experts.active if experts else 0, "f": model.ffn, "h_nope": attention.nope_dim,
        "h_v": attention.value_dim, "m": experts.ffn if experts else 0,
        "n_logits": max(settings.batch, profiled_sequences(settings)) if only_last else n_prompt,
        "n_prompt": n_prompt, "q_other": 4 if settings.weight_type == "fp32" else 2,
        "r_rope": attention.rope_dim, "s": settings.prompt, "t": settings.serving_gpus,
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


def prompt_tokens(settings: InferenceSettings) -> int:
    """Return the prompt tokens of one forward pass of completed settings: a chunk, or all."""
    every = settings.batch * settings.prompt
    return min(settings.prefill_chunk or every, every)


def _prefill_line(model: Model, symbols: dict[str, float]) -> Line:
    """Return the activations of the part of a layer that needs most."""
    parts = [(PREFILL, _widths_alive(model))]
    if model.experts is not None:
        parts.append((PREFILL_EXPERTS, 9 if model.style.clamped else 4))
    if model.attention.kv_rank:
        parts.append((PREFILL_MLA, 0))
    values = [(formula, {**symbols, "g": widths}) for formula, widths in parts]
    mixers = (block for block in model.blocks if block.kind in PREFILLS)
    values += [(PREFILLS[block.kind], {**symbols, **block.sizes}) for block in mixers]
    formula, symbols = max(values, key=lambda each: each[0].evaluate({**each[1], "n_prompt": 1}))
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
    out = ["speculative decoding"]
    if not model.has_shape and settings.weight_type in FILES:
        out.append(f"larger types of some tensors of a {settings.weight_type} file, 0 to 10%")
    if not model.has_shape:
        out.append(f"{MISSING}: the model's layers and widths are not known")
    if "sdpa" not in model.style.kernels:
        out.append(f"scores of eager attention, {model.family}'s default in Hugging Face (b a s^2)")
    if model.experts is not None:
        out.append("uneven routing: experts that get more tokens than others")
    return (*model.leaves_out, *out)
