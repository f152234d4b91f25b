"""ChatGLM2, ChatGLM3 and GLM-4 (9B), as in the modeling_chatglm.py of their repositories."""

from __future__ import annotations

from tokmill.bill.models.build import make_model
from tokmill.bill.models.family import LANGUAGE, WITH_FFN, Family, Fields
from tokmill.bill.models.model import Model, Style
from tokmill.bill.models.parts import embedding, fused_attention, head, in_layers, linear, norms
from tokmill.bill.models.shape import FLOAT_BYTES, read_shape
from tokmill.errors import UsageError


def _build(f: Fields) -> Model:
    if f.size("inner_hidden_size"):
        raise UsageError(f"{f.where}: the first ChatGLM-6B is not known; give version 2, 3 or 4")
    heads = f.count("num_attention_heads")
    groups = f.count("num_key_value_heads", 1) if f.flag("multi_query_attention") else heads
    s, bias = read_shape(f, kv_heads=groups), f.flag("add_bias_linear")
    block = (
        *norms(s, "input_layernorm"),
        *fused_attention(s, bias=bias or f.flag("add_qkv_bias"), out_bias=bias),
        *norms(s, "post_attention_layernorm"),
        *linear("mlp.dense_h_to_4h", s.hidden, 2 * s.ffn, "mlp", "columns", bias=bias),
        *linear("mlp.dense_4h_to_h", s.ffn, s.hidden, "mlp", "rows", bias=bias),
    )
    tensors = (
        *embedding("transformer.embedding.word_embeddings", s.vocabulary, s.hidden),
        *in_layers("transformer.encoder.layers", range(s.layers), block),
        *norms(s, "transformer.encoder.final_layernorm"),
        *head(s, "transformer.output_layer"),
    )
    # Half of a head is rotated: one value per pair of features.
    rotary = FLOAT_BYTES * (s.head_dim // 4)
    return make_model(f, s, tensors, buffer_bytes=rotary)


FAMILY = Family(
    build=_build,
    # Their config.json names the class without a head but means the one with it.
    heads={"ChatGLMModel": LANGUAGE, "ChatGLMForConditionalGeneration": LANGUAGE},
    style=Style(measured=False, inputs=(1, 1), fused="value", copied=True),
    defaults={
        "vocab_size": 65024, "intermediate_size": 13696, "head_dim": 128, "num_attention_heads": 32,
        "max_position_embeddings": 2048, "hidden_act": "silu",
    },
    needed=(*WITH_FFN, "num_key_value_heads"),
    names={
        "num_layers": "num_hidden_layers", "padded_vocab_size": "vocab_size",
        "ffn_hidden_size": "intermediate_size", "kv_channels": "head_dim",
        "multi_query_group_num": "num_key_value_heads", "seq_length": "max_position_embeddings",
    },
    implied={"multi_query_attention": True, "add_qkv_bias": True},
)  # fmt: skip
