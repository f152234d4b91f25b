"""What autograd saves of one layer, to the byte, against the rows of the bill.

Tiny models run forward on the CPU with one and with two layers; the difference is a layer. A CPU
differs from a GPU in two ways, which are added here: its autocast leaves powers in 16 bit, and its
LayerNorm keeps statistics in the type of the input.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tokmill.bill.activations.layers import layer_parts  # noqa: E402
from tokmill.bill.activations.part import summed  # noqa: E402
from tokmill.bill.activations.situation import (  # noqa: E402
    activation_symbols,
    situation,
)
from tokmill.bill.formula import evaluate  # noqa: E402
from tokmill.bill.models.load import model_from_config  # noqa: E402
from tokmill.settings.training import TrainingSettings  # noqa: E402

BATCH, SEQUENCE = 2, 31
TOKENS = BATCH * SEQUENCE
"""No width is a multiple of 31, so that what is saved of weights is told from what is of tokens."""
FFN = 104

_GPT2 = {"n_embd": 64, "n_head": 4, "n_inner": FFN, "vocab_size": 97, "n_positions": 64}
_GPT2 |= {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
_SIZES = {
    "hidden_size": 64, "intermediate_size": FFN, "num_attention_heads": 4, "vocab_size": 97,
    "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip
_GROUPED = {**_SIZES, "num_key_value_heads": 2}
_HEADS = {**_GROUPED, "head_dim": 24}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_T5 = {
    "d_model": 64, "d_ff": FFN, "num_heads": 4, "d_kv": 24, "vocab_size": 97, "dropout_rate": 0.0,
    "decoder_start_token_id": 0,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": _GPT2,
    "gpt_neox": _SIZES,
    "opt": {
        "hidden_size": 64, "ffn_dim": FFN, "num_attention_heads": 4, "vocab_size": 97,
        "word_embed_proj_dim": 64, "dropout": 0.0, "attention_dropout": 0.0,
    },
    "bloom": {
        "hidden_size": 64, "n_head": 4, "vocab_size": 97, "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    },
    "llama": _HEADS,
    "mistral": {**_HEADS, "sliding_window": None},
    "qwen2": _GROUPED,
    "qwen3": _HEADS,
    "gemma": _HEADS,
    "gemma2": _HEADS,
    "gemma3_text": _HEADS,
    "phi": {**_GROUPED, "resid_pdrop": 0.0, "embd_pdrop": 0.0},
    "phi3": _GROUPED,
    "falcon": {
        "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 97, "ffn_hidden_size": FFN,
    },
    "olmo2": _GROUPED,
    "bert": {**_SIZES, **_NO_DROPOUT},
    "roberta": {**_SIZES, **_NO_DROPOUT},
    "t5": _T5,
    "t5 gated": {**_T5, "feed_forward_proj": "gated-gelu"},
    "mixtral": {**_GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2},
    "smollm3": _GROUPED,
    "olmo3": _GROUPED,
    "granite": _GROUPED,
    "seed_oss": {**_HEADS, "residual_dropout": 0.0, "attention_dropout": 0.0},
    "ministral": {**_HEADS, "sliding_window": 64},
    "starcoder2": {
        **_GROUPED, "residual_dropout": 0.0, "embedding_dropout": 0.0, "attention_dropout": 0.0,
    },
    "stablelm": {**_GROUPED, "hidden_dropout": 0.0},
    "minimax_m2": {**_HEADS, "num_local_experts": 4, "num_experts_per_tok": 2},
}  # fmt: skip
LAYERS = {"gpt2": "n_layer", "bloom": "n_layer", "t5": "num_layers", "t5 gated": "num_layers"}
HEADS = {
    "bert": "AutoModelForMaskedLM", "roberta": "AutoModelForMaskedLM",
    "t5": "AutoModelForSeq2SeqLM",
}  # fmt: skip
GELU_NEW = ("gpt2", "phi")
LAYER_NORMS = {
    "gpt2": 2,
    "gpt_neox": 2,
    "opt": 2,
    "bloom": 2,
    "phi": 1,
    "falcon": 1,
    "bert": 2,
    "roberta": 2,
    "starcoder2": 2,
    "stablelm": 2,
}
UNMASKED = ("bert", "roberta", "t5", "t5 gated")
"""A mask makes scores fp32 on a CPU too; T5's cross-attention has none."""
ONLY_EAGER = ("bloom", "gemma2", "t5", "t5 gated")
ONE_HEAD = ("falcon",)
"""Their sdpa falls back to a kernel that keeps scores, as eager attention does."""


def config_of(family: str, layers: int) -> dict[str, Any]:
    return {**CONFIGS[family], LAYERS.get(family, "num_hidden_layers"): layers}


def saved_bytes(family: str, layers: int, training: TrainingSettings) -> int:
    """Return the bytes of distinct storages of tokens that a forward pass saves."""
    config = transformers.AutoConfig.for_model(family.split()[0], **config_of(family, layers))
    kernel = "eager" if training.attention == "eager" else "sdpa"
    of = getattr(transformers, HEADS.get(family.split()[0], "AutoModelForCausalLM"))
    model = of.from_config(config, attn_implementation=kernel)
    if training.precision == "pure-16" or training.adapter != "none":
        model = model.to(torch.float32 if training.precision == "fp32" else torch.bfloat16)
    if training.adapter == "lora":
        model = with_adapters(model, training)
    kept: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        kept.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    ids = torch.zeros(BATCH, SEQUENCE, dtype=torch.long)
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    on = training.precision == "amp"
    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=on),
    ):
        inputs = {"input_ids": ids, "labels": ids}
        inputs |= {} if family in ("bert", "roberta") else {"use_cache": False}
        if training.attention == "sdpa-mask":
            padding = torch.ones_like(ids)
            padding[0, 0] = 0
            inputs["attention_mask"] = padding
        loss = model.train()(**inputs).loss
    sizes = [t.untyped_storage().nbytes() for at, t in kept.items() if at not in weights]
    assert loss.requires_grad
    return sum(size for size in sizes if size % TOKENS == 0)


def with_adapters(model: Any, training: TrainingSettings) -> Any:
    peft = pytest.importorskip("peft")
    targets = training.adapter_targets
    named = targets if targets == "all-linear" else targets.split(",")
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=training.adapter_rank, target_modules=named)
    model = peft.get_peft_model(model, config)
    model.enable_input_require_grads()
    return model


def of_a_layer(family: str, training: TrainingSettings) -> float:
    """Return the bytes per token that one more layer saves, as a GPU would."""
    torch.set_num_threads(1)
    one, two = (saved_bytes(family, layers, training) for layers in (1, 2))
    found = (two - one) / TOKENS
    if training.precision == "amp" and family in GELU_NEW:
        found += 6 * FFN  # powers that CUDA's autocast makes fp32
    if training.precision == "amp" and family == "t5 gated":
        found += 2 * 8 * FFN  # the same, and the activated gate, of encoder and decoder
    if training.precision == "amp" and training.attention == "eager" and family in UNMASKED:
        found += 4 * 4 * SEQUENCE  # softmax that CUDA's autocast makes fp32
    if training.precision == "pure-16" and family in LAYER_NORMS:
        found += 4 * LAYER_NORMS[family]  # statistics that CUDA keeps in fp32
    return found


def predicted(family: str, training: TrainingSettings) -> float:
    model = model_from_config({"model_type": family.split()[0], **config_of(family, 2)})
    at = situation(model, training)
    symbols = activation_symbols(model, training, at)
    parts = layer_parts(at)
    return sum(len(part.layers) / 2 * evaluate(summed(part.saved), symbols) for part in parts)


def settings(family: str, precision: str, **others: Any) -> TrainingSettings:
    if family in (*ONLY_EAGER, *ONE_HEAD):
        others["attention"] = "eager"
    return TrainingSettings(precision=precision, micro_batch=BATCH, sequence=SEQUENCE, **others)


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("precision", ["fp32", "amp", "pure-16"])
def test_a_layer_saves_what_the_rows_say(family: str, precision: str) -> None:
    training = settings(family, precision)
    assert of_a_layer(family, training) == predicted(family, training)


@pytest.mark.parametrize("family", ["gpt2", "llama", "gpt_neox", "phi3", "bert"])
@pytest.mark.parametrize("precision", ["fp32", "amp", "pure-16"])
def test_eager_attention_saves_scores(family: str, precision: str) -> None:
    training = settings(family, precision, attention="eager")
    assert of_a_layer(family, training) == predicted(family, training)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize("precision", ["fp32", "amp"])
def test_a_mask_is_kept_and_repeats_grouped_heads(family: str, precision: str) -> None:
    training = settings(family, precision, attention="sdpa-mask")
    assert of_a_layer(family, training) == predicted(family, training)


_MIXED = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 40}
MIXTURES: dict[str, dict[str, Any]] = {
    "gpt_oss": {**_HEADS, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 64},
    "qwen2_moe": {**_GROUPED, **_MIXED, "shared_expert_intermediate_size": 48},
    "qwen3_moe": {**_HEADS, **_MIXED},
    "deepseek_v3": {
        **_SIZES, **_MIXED, "num_key_value_heads": 4, "n_routed_experts": 4, "q_lora_rank": 16,
        "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8,
        "n_group": 1, "topk_group": 1, "first_k_dense_replace": 0, "n_shared_experts": 1,
    },
    "olmoe": {**_GROUPED, "num_experts": 4, "num_experts_per_tok": 2},
    "granitemoe": {**_GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2},
    "glm4_moe": {
        **_HEADS, **_MIXED, "n_routed_experts": 4, "n_group": 1, "topk_group": 1,
        "first_k_dense_replace": 0, "n_shared_experts": 1,
    },
}  # fmt: skip


@pytest.mark.parametrize("family", MIXTURES)
@pytest.mark.parametrize("precision", ["fp32", "pure-16"])
def test_a_mixture_saves_what_the_rows_say_but_for_bytes_of_its_router(
    family: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CONFIGS, family, MIXTURES[family])
    training = settings(family, precision, attention="eager")
    assert abs(of_a_layer(family, training) - predicted(family, training)) <= 28


@pytest.mark.parametrize("precision", ["fp32", "pure-16"])
def test_eager_compressed_attention_saves_what_the_rows_say(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense = MIXTURES["deepseek_v3"] | {"first_k_dense_replace": 9, "v_head_dim": 6}
    monkeypatch.setitem(CONFIGS, "deepseek_v3", dense)
    training = settings("deepseek_v3", precision, attention="eager")
    assert of_a_layer("deepseek_v3", training) == predicted("deepseek_v3", training)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")  # peft 0.21
@pytest.mark.parametrize("precision", ["fp32", "amp", "pure-16"])
@pytest.mark.parametrize("targets", ["q_proj,v_proj", "all-linear", "o_proj,down_proj"])
def test_adapters_save_inputs_and_ranks(precision: str, targets: str) -> None:
    training = settings("llama", precision, adapter="lora", adapter_targets=targets, adapter_rank=5)
    assert of_a_layer("llama", training) == predicted("llama", training)
