"""The models of the measured grid, by their configurations."""

from __future__ import annotations

from typing import Any

_GPT2 = {
    "model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257,
    "n_positions": 1024, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
}  # fmt: skip
_LLAMA = {
    "model_type": "llama", "num_hidden_layers": 22, "hidden_size": 2048,
    "intermediate_size": 5632, "num_attention_heads": 32, "num_key_value_heads": 4,
    "vocab_size": 32000, "max_position_embeddings": 8192,
}  # fmt: skip
_OPT = {
    "model_type": "opt", "num_hidden_layers": 12, "hidden_size": 768, "ffn_dim": 3072,
    "num_attention_heads": 12, "vocab_size": 50272, "max_position_embeddings": 2048,
    "word_embed_proj_dim": 768, "dropout": 0.0, "attention_dropout": 0.0,
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": _GPT2,
    "gpt2-medium": {**_GPT2, "n_layer": 24, "n_embd": 1024, "n_head": 16},
    "tinyllama": _LLAMA,
    "llama-wide": {
        **_LLAMA, "num_hidden_layers": 8, "hidden_size": 3072, "intermediate_size": 12288,
        "num_attention_heads": 24, "num_key_value_heads": 8, "vocab_size": 4096,
    },
    "qwen2-0.5b": {
        "model_type": "qwen2", "num_hidden_layers": 24, "hidden_size": 896,
        "intermediate_size": 4864, "num_attention_heads": 14, "num_key_value_heads": 2,
        "vocab_size": 151936, "tie_word_embeddings": True, "max_position_embeddings": 32768,
    },
    "qwen3-0.6b": {
        "model_type": "qwen3", "num_hidden_layers": 28, "hidden_size": 1024,
        "intermediate_size": 3072, "num_attention_heads": 16, "num_key_value_heads": 8,
        "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True,
        "max_position_embeddings": 32768,
    },
    "gemma2-small": {
        "model_type": "gemma2", "num_hidden_layers": 12, "hidden_size": 1152,
        "intermediate_size": 4608, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 256, "vocab_size": 64000, "max_position_embeddings": 8192,
    },
    "gemma3-small": {
        "model_type": "gemma3_text", "num_hidden_layers": 12, "hidden_size": 1152,
        "intermediate_size": 6912, "num_attention_heads": 4, "num_key_value_heads": 1,
        "head_dim": 256, "vocab_size": 64000, "max_position_embeddings": 8192,
        "sliding_window": 4096,
    },
    "opt-125m": _OPT,
    "pythia-160m": {
        "model_type": "gpt_neox", "num_hidden_layers": 12, "hidden_size": 768,
        "intermediate_size": 3072, "num_attention_heads": 12, "vocab_size": 50304,
        "max_position_embeddings": 2048, "rotary_pct": 0.25, "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    },
    "phi3-small": {
        "model_type": "phi3", "num_hidden_layers": 12, "hidden_size": 1536,
        "intermediate_size": 4096, "num_attention_heads": 24, "num_key_value_heads": 24,
        "vocab_size": 32064, "max_position_embeddings": 4096,
    },
    "phi-small": {
        "model_type": "phi", "num_hidden_layers": 12, "hidden_size": 1024,
        "intermediate_size": 4096, "num_attention_heads": 16, "num_key_value_heads": 16,
        "vocab_size": 51200, "max_position_embeddings": 2048,
    },
    "olmo2-small": {
        "model_type": "olmo2", "num_hidden_layers": 12, "hidden_size": 1024,
        "intermediate_size": 4096, "num_attention_heads": 16, "num_key_value_heads": 16,
        "vocab_size": 100352, "max_position_embeddings": 4096,
    },
    "bloom-small": {
        "model_type": "bloom", "n_layer": 12, "hidden_size": 768, "n_head": 12,
        "vocab_size": 50304, "hidden_dropout": 0.0, "attention_dropout": 0.0,
    },
    "falcon-small": {
        "model_type": "falcon", "num_hidden_layers": 12, "hidden_size": 1024,
        "num_attention_heads": 16, "multi_query": False, "vocab_size": 65024,
    },
    "mistral-small": {
        "model_type": "mistral", "num_hidden_layers": 12, "hidden_size": 1536,
        "intermediate_size": 5376, "num_attention_heads": 12, "num_key_value_heads": 4,
        "head_dim": 128, "vocab_size": 32768, "max_position_embeddings": 32768,
        "sliding_window": None,
    },
    "llama3-small": {
        **_LLAMA, "num_hidden_layers": 6, "intermediate_size": 7168, "num_attention_heads": 16,
        "vocab_size": 128256,
    },
    "qwen2-short": {
        "model_type": "qwen2", "num_hidden_layers": 6, "hidden_size": 1536,
        "intermediate_size": 8960, "num_attention_heads": 12, "num_key_value_heads": 2,
        "vocab_size": 151936, "tie_word_embeddings": True, "max_position_embeddings": 32768,
    },
    "tied-150k": {
        **_LLAMA, "num_hidden_layers": 6, "hidden_size": 1024, "intermediate_size": 2816,
        "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 150_000,
        "tie_word_embeddings": True,
    },
    "mixtral-small": {
        "model_type": "mixtral", "num_hidden_layers": 4, "hidden_size": 1024,
        "intermediate_size": 3584, "num_attention_heads": 16, "num_key_value_heads": 4,
        "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2,
    },
    "qwen3-moe-small": {
        "model_type": "qwen3_moe", "num_hidden_layers": 4, "hidden_size": 1024,
        "intermediate_size": 3072, "moe_intermediate_size": 512, "num_attention_heads": 16,
        "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 32000, "num_experts": 32,
        "num_experts_per_tok": 4, "decoder_sparse_step": 1,
    },
    "llama-mha": {
        **_LLAMA, "num_hidden_layers": 7, "hidden_size": 1792, "intermediate_size": 4864,
        "num_attention_heads": 14, "num_key_value_heads": 14, "vocab_size": 50304,
    },
    "qwen3-tied": {
        "model_type": "qwen3", "num_hidden_layers": 5, "hidden_size": 1280,
        "intermediate_size": 3584, "num_attention_heads": 16, "num_key_value_heads": 8,
        "head_dim": 64, "vocab_size": 152064, "tie_word_embeddings": True,
    },
    "mixtral-wide": {
        "model_type": "mixtral", "num_hidden_layers": 5, "hidden_size": 768,
        "intermediate_size": 2048, "num_attention_heads": 12, "num_key_value_heads": 3,
        "vocab_size": 50000, "num_local_experts": 6, "num_experts_per_tok": 3,
    },
    "qwen2-moe-small": {
        "model_type": "qwen2_moe", "num_hidden_layers": 3, "hidden_size": 896,
        "intermediate_size": 2048, "moe_intermediate_size": 640,
        "shared_expert_intermediate_size": 1792, "num_attention_heads": 14,
        "num_key_value_heads": 2, "vocab_size": 65536, "num_experts": 16,
        "num_experts_per_tok": 4, "decoder_sparse_step": 1,
    },
    "moe-few-ids": {
        "model_type": "qwen3_moe", "num_hidden_layers": 3, "hidden_size": 512,
        "intermediate_size": 2048, "moe_intermediate_size": 1792, "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 2048, "num_experts": 8,
        "num_experts_per_tok": 2, "decoder_sparse_step": 1,
    },
    "gpt2-tiny": {
        **_GPT2, "n_layer": 4, "n_embd": 256, "n_head": 4, "vocab_size": 8192, "n_positions": 256,
    },
}  # fmt: skip
