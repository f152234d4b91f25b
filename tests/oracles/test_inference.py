"""What generating with Hugging Face's models really holds, against the bill: cache and prompt."""

import weakref

import pytest

from tokmill.bill.models.load import model_from_config
from tokmill.bill.serving import inference_bill, kv_cache_lines
from tokmill.settings.training import InferenceSettings

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

TOKENS = 256
COMMON = {
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 64, "max_position_embeddings": 512,
}  # fmt: skip
MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 128}
MLA = {
    "model_type": "deepseek_v3", "hidden_size": 128, "intermediate_size": 512, **COMMON,
    "num_attention_heads": 16, "num_key_value_heads": 16, "n_routed_experts": 4, **MOE,
    "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "q_lora_rank": 32,
    "kv_lora_rank": 32, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32,
}  # fmt: skip
LLAMA = {"model_type": "llama", "hidden_size": 128, "intermediate_size": 512, **COMMON}


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of tensors made inside it that are alive, and their peak."""

    def __init__(self, there_before):
        super().__init__()
        self.sizes = dict.fromkeys((t.untyped_storage()._cdata for t in there_before), 0)
        self.now = self.peak = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self.count(tensor.untyped_storage())
        self.peak = max(self.peak, self.now)
        return result

    def count(self, storage):
        if storage._cdata not in self.sizes:
            self.sizes[storage._cdata] = storage.nbytes()
            self.now += storage.nbytes()
            weakref.finalize(storage, self.forget, storage._cdata)

    def forget(self, key):
        self.now -= self.sizes.pop(key)


def kernel(module, query, key, value, attention_mask, **settings):
    """Attention that keeps no scores, as kernels on a GPU; biases are copied as for sdpa."""
    if settings.get("position_bias") is not None:
        settings["position_bias"] = settings["position_bias"].contiguous()
    batch, heads, tokens, _ = query.shape
    return query.new_zeros(batch, tokens, heads, value.shape[-1]), None


def encoded(config, head):
    """Return the peak bytes of an encoder in bf16 and a first token behind it, and of its cache."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    transformers.AttentionInterface.register("kernel", kernel)
    settings = transformers.AutoConfig.for_model(**config)
    model = (
        getattr(transformers, head)
        .from_config(settings, dtype=torch.bfloat16, attn_implementation="kernel")
        .eval()
    )
    ids, first = torch.ones(1, TOKENS, dtype=torch.long), torch.ones(1, 1, dtype=torch.long)
    live = LiveBytes([*model.parameters(), *model.buffers(), ids, first])
    decoder = (
        {"decoder_input_ids": first, "use_cache": True} if config["model_type"] == "t5" else {}
    )
    with torch.no_grad(), live:
        found = model(input_ids=ids, **decoder)
    caches = found.past_key_values if decoder else None
    layers = [] if caches is None else caches.cross_attention_cache.layers
    return live.peak, sum(t.nbytes for layer in layers for t in (layer.keys, layer.values))


ENCODER = {
    "model_type": "bert", "hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 3,
    "num_attention_heads": 4, "vocab_size": 64, "max_position_embeddings": 512,
}  # fmt: skip
T5 = {
    "model_type": "t5", "d_model": 128, "d_ff": 256, "num_layers": 3, "num_heads": 4, "d_kv": 32,
    "vocab_size": 64,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "head", "off"),
    [
        (ENCODER, "AutoModelForMaskedLM", 0.1),
        ({**ENCODER, "model_type": "roberta"}, "AutoModelForMaskedLM", 0.1),
        (T5, "AutoModelForSeq2SeqLM", 0.2),
        ({**T5, "num_heads": 32, "d_kv": 4}, "AutoModelForSeq2SeqLM", 0.2),
    ],
    ids=["bert", "roberta", "t5", "t5 with 32 heads"],
)
def test_an_encoder_takes_what_the_bill_says_and_a_decoder_keeps_its_keys(config, head, off):
    peak, kept = encoded(config, head)
    bill = inference_bill(model_from_config(config), InferenceSettings(), context=TOKENS)
    cross = sum(each.n_bytes for each in bill.lines if each.name.endswith("cross-attention"))
    assert kept == cross
    passing = ("activations", "learned positions")
    expected = sum(each.n_bytes for each in bill.lines if each.name.startswith(passing))
    assert expected == pytest.approx(peak, rel=off)


def prompt(config):
    """Return the peak bytes of a prompt's pass in bf16, and those of its cache."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    transformers.AttentionInterface.register("kernel", kernel)
    settings = transformers.AutoConfig.for_model(**config)
    model = transformers.AutoModelForCausalLM.from_config(
        settings, dtype=torch.bfloat16, attn_implementation="kernel"
    ).eval()
    ids = torch.ones(1, TOKENS, dtype=torch.long)
    cache = transformers.DynamicCache(config=model.config)
    live = LiveBytes([*model.parameters(), *model.buffers(), ids])
    with torch.no_grad(), live:
        model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
    kept = sum(t.nbytes for layer in cache.layers for t in (layer.keys, layer.values))
    return live.peak, kept


@pytest.mark.parametrize(
    "config",
    [
        LLAMA,
        {**LLAMA, "model_type": "qwen2"},
        {**LLAMA, "model_type": "mistral", "sliding_window": 65},
        {**LLAMA, "model_type": "gemma2", "sliding_window": 65, "head_dim": 32},
        {**LLAMA, "model_type": "gemma2", "sliding_window": 1000, "head_dim": 32},
        MLA,
    ],
    ids=["full", "biases", "sliding", "every other sliding", "short", "compressed"],
)
def test_the_cache_is_what_the_bill_says(config):
    _, kept = prompt(config)
    lines = kv_cache_lines(model_from_config(config), InferenceSettings(), TOKENS)
    assert kept == sum(line.n_bytes for line in lines) - one_token(lines)


def one_token(lines):
    """Hugging Face's sliding layers keep the window less the token that comes next."""
    return sum(line.n_bytes // 65 for line in lines if line.symbols["tokens"] == 65)


@pytest.mark.parametrize(
    ("config", "off"),
    [
        (LLAMA, 0.05),
        ({**LLAMA, "model_type": "qwen2", "intermediate_size": 384}, 0.05),
        (
            {"model_type": "gpt_neox", "hidden_size": 128, "intermediate_size": 512, **COMMON},
            0.06,
        ),
        ({"model_type": "gpt2", "n_embd": 128, "n_layer": 3, "n_head": 4, "vocab_size": 64}, 0.15),
        (
            {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2,
             "intermediate_size": 256},
            0.05,
        ),
        ({**LLAMA, "model_type": "phi3", "pad_token_id": 0}, 0.05),
        ({**LLAMA, "model_type": "phi"}, 0.05),
        ({**LLAMA, "model_type": "gemma2", "head_dim": 32, "sliding_window": 1000}, 0.05),
        ({**LLAMA, "model_type": "gpt_oss", "num_local_experts": 4, **MOE, "head_dim": 32}, 0.1),
        ({**LLAMA, "model_type": "qwen3_moe", "num_experts": 8, **MOE, "head_dim": 32}, 0.08),
        (MLA, 0.05),
    ],
    ids=lambda value: value.get("model_type") if isinstance(value, dict) else "",
)  # fmt: skip
def test_the_largest_layer_of_a_prompt_is_near_what_the_bill_says(config, off):
    peak, kept = prompt(config)
    bill = inference_bill(model_from_config(config), InferenceSettings(), context=TOKENS)
    line = next(each for each in bill.lines if each.name.startswith("activations"))
    assert line.n_bytes == pytest.approx(peak - kept, rel=off)
