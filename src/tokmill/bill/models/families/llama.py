"""Families with RMSNorm, rotary positions and a gated feed-forward layer: Llama and its kin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.bill.models.parts import (
    Part,
    attention,
    embedding,
    gated_mlp,
    head,
    head_norms,
    in_layers,
    linear,
    norms,
)
from tokmill.bill.models.shape import (
    FLOAT_BYTES,
    Family,
    all_windows,
    layer_types,
    make_model,
    read_shape,
    rotary_bytes,
    typed_windows,
)

if TYPE_CHECKING:
    from tokmill.bill.models.model import Attention, Experts, Model
    from tokmill.bill.models.shape import Fields, Shape

PRE_NORMS = ("input_layernorm", "post_attention_layernorm")
FOUR_NORMS = (*PRE_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")


def decoder(
    f: Fields,
    s: Shape,
    *block: Part,
    choosing: Part = (),
    experts: Experts | None = None,
    attention: Attention | None = None,
    windows: tuple[int, ...] = (),
    buffer_bytes: int | None = None,
    leaves_out: tuple[str, ...] = (),
) -> Model:
    """Make a model of Llama's kind; its buffers are by default those of rotary positions.

    Every layer holds `block`. Of a mixture the layers of `experts` hold `choosing` too, and the
    others a gated layer.
    """
    tensors = (
        *embedding("model.embed_tokens", s.vocabulary, s.hidden),
        *in_layers("model.layers", range(s.layers), *block),
        *(_mixture(s, choosing, experts) if experts else ()),
        *norms(s, "model.norm"),
        *head(s),
    )
    return make_model(
        f,
        s,
        tensors,
        attention=attention,
        windows=windows,
        experts=experts if experts and experts.layers else None,
        buffer_bytes=rotary_bytes(f, s.head_dim) if buffer_bytes is None else buffer_bytes,
        leaves_out=leaves_out,
    )


def _mixture(s: Shape, choosing: Part, experts: Experts) -> Part:
    dense = sorted(set(range(s.layers)) - set(experts.layers))
    return (
        *in_layers("model.layers", dense, gated_mlp(s.hidden, s.ffn)),
        *in_layers("model.layers", experts.layers, choosing),
    )


def _block(f: Fields, s: Shape, between: Part = (), names: tuple[str, ...] = PRE_NORMS) -> Part:
    """Return attention whose bias the configuration chooses, `between`, a gated layer, norms."""
    bias = f.flag("attention_bias")
    return (
        *attention(s, bias=bias, out_bias=bias),
        *between,
        *gated_mlp(s.hidden, s.ffn),
        *norms(s, *names),
    )


def _llama(f: Fields) -> Model:
    s, bias = read_shape(f), f.flag("attention_bias")
    mlp = gated_mlp(s.hidden, s.ffn, bias=f.flag("mlp_bias"))
    return decoder(f, s, attention(s, bias=bias, out_bias=bias), mlp, norms(s, *PRE_NORMS))


def _mistral(f: Fields) -> Model:
    s = read_shape(f)
    block = (attention(s), gated_mlp(s.hidden, s.ffn), norms(s, *PRE_NORMS))
    return decoder(f, s, *block, windows=all_windows(f, s.layers))


def _qwen2(f: Fields) -> Model:
    s = read_shape(f)
    block = (attention(s, bias=True), gated_mlp(s.hidden, s.ffn), norms(s, *PRE_NORMS))
    return decoder(f, s, *block, windows=_qwen_windows(f, s))


def _qwen3(f: Fields) -> Model:
    s = read_shape(f)
    return decoder(f, s, _block(f, s, head_norms(s.head_dim)), windows=_qwen_windows(f, s))


def _qwen_windows(f: Fields, s: Shape) -> tuple[int, ...]:
    first = f.size("max_window_layers")
    if not f.flag("use_sliding_window"):
        return ()
    return typed_windows(f, s.layers, lambda layer: layer >= first)


def _olmo2(f: Fields) -> Model:
    s = read_shape(f)
    return decoder(f, s, _block(f, s, head_norms(s.query_width, s.kv_width), FOUR_NORMS[1::2]))


def _gemma(f: Fields) -> Model:
    s = read_shape(f)
    buffers = rotary_bytes(f, s.head_dim) + FLOAT_BYTES  # and the embedding's scale
    return decoder(f, s, _block(f, s), buffer_bytes=buffers)


def _gemma2(f: Fields) -> Model:
    s = read_shape(f)
    windows = typed_windows(f, s.layers, lambda layer: layer % 2 == 0)
    buffers = rotary_bytes(f, s.head_dim) + FLOAT_BYTES
    block = _block(f, s, names=FOUR_NORMS)
    return decoder(f, s, block, windows=windows, buffer_bytes=buffers)


def _gemma3(f: Fields) -> Model:
    s, period = read_shape(f), f.count("sliding_window_pattern", 6)

    def slides(layer: int) -> bool:
        return (layer + 1) % period > 0

    kinds = len(set(layer_types(f, s.layers, slides)))
    windows = typed_windows(f, s.layers, slides)
    buffers = kinds * rotary_bytes(f, s.head_dim) + FLOAT_BYTES
    block = _block(f, s, head_norms(s.head_dim), FOUR_NORMS)
    return decoder(f, s, block, windows=windows, buffer_bytes=buffers)


def _phi3(f: Fields) -> Model:
    s = read_shape(f)
    qkv = s.query_width + 2 * s.kv_width
    block = (
        *linear("self_attn.o_proj", s.query_width, s.hidden, "attention", "rows"),
        *linear("self_attn.qkv_proj", s.hidden, qkv, "attention", "columns"),
        *linear("mlp.gate_up_proj", s.hidden, 2 * s.ffn, "mlp", "columns"),
        *linear("mlp.down_proj", s.ffn, s.hidden, "mlp", "rows"),
    )
    return decoder(f, s, block, norms(s, *PRE_NORMS), windows=all_windows(f, s.layers))


_QWEN2 = {
    "vocab_size": 151936, "intermediate_size": 22016, "num_attention_heads": 32,
    "num_key_value_heads": 32, "hidden_act": "silu", "max_position_embeddings": 32768,
    "max_window_layers": 28, "sliding_window": 4096,
}  # fmt: skip
_LLAMA = {
    "vocab_size": 32000, "intermediate_size": 11008, "num_attention_heads": 32,
    "hidden_act": "silu", "max_position_embeddings": 2048,
}  # fmt: skip
_GEMMA = {
    "vocab_size": 256000, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    "intermediate_size": 9216, "hidden_act": "gelu_pytorch_tanh", "max_position_embeddings": 8192,
    "tie_word_embeddings": True, "sliding_window": 4096,
}  # fmt: skip
_GEMMA_NAMES = {"hidden_activation": "hidden_act"}

FAMILIES = {
    "llama": Family(_llama, "LlamaForCausalLM", _LLAMA),
    "mistral": Family(
        _mistral, "MistralForCausalLM",
        {
            **_LLAMA, "intermediate_size": 14336, "num_key_value_heads": 8,
            "max_position_embeddings": 131072, "sliding_window": 4096,
        },
        implied={"sliding_window": 0},
    ),
    "qwen2": Family(_qwen2, "Qwen2ForCausalLM", _QWEN2),
    "qwen3": Family(_qwen3, "Qwen3ForCausalLM", {**_QWEN2, "head_dim": 128}),
    "gemma": Family(
        _gemma, "GemmaForCausalLM",
        {
            **_GEMMA, "num_attention_heads": 16, "num_key_value_heads": 16,
            "intermediate_size": 24576,
        },
    ),
    "gemma2": Family(_gemma2, "Gemma2ForCausalLM", _GEMMA, _GEMMA_NAMES),
    "gemma3_text": Family(
        _gemma3, "Gemma3ForCausalLM",
        {**_GEMMA, "vocab_size": 262208, "max_position_embeddings": 131072},
        {**_GEMMA_NAMES, "_sliding_window_pattern": "sliding_window_pattern"},
    ),
    "phi3": Family(
        _phi3, "Phi3ForCausalLM",
        {
            **_LLAMA, "vocab_size": 32064, "intermediate_size": 8192,
            "max_position_embeddings": 4096,
        },
    ),
    "olmo2": Family(_olmo2, "Olmo2ForCausalLM", {**_LLAMA, "vocab_size": 50304}),
}  # fmt: skip
