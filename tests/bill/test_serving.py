"""The bill of inference: weights, cache and activations on each GPU."""

from __future__ import annotations

import pytest

from tokmill.bill.gpus import find_gpu
from tokmill.bill.models.load import load_model, model_from_config
from tokmill.bill.models.model import Attention, Block, Model, Tensor
from tokmill.bill.serving import inference_bill, kv_cache_lines, weight_line
from tokmill.errors import UsageError
from tokmill.settings.training import InferenceSettings, ModelSettings

LAYERS = (0, 1)
ATTENTION = Attention(heads=4, kv_heads=2, head_dim=2)
TENSORS = (
    Tensor("embed.weight", (100, 8), "embedding", "embedding", "vocabulary"),
    Tensor("{}.q_proj.weight", (8, 8), "attention", "linear", "columns", 8, 8, LAYERS),
    Tensor("{}.k_proj.weight", (4, 8), "attention", "linear", "columns", 8, 4, LAYERS),
    Tensor("{}.gate_proj.weight", (16, 8), "mlp", "linear", "columns", 8, 16, LAYERS),
    Tensor("{}.down_proj.weight", (8, 16), "mlp", "linear", "rows", 16, 8, LAYERS),
    Tensor("{}.router.weight", (6, 8), "router", "linear", "none", 8, 6, LAYERS),
    Tensor("{}.norm.weight", (8,), "norm", "vector", layers=LAYERS),
    Tensor("head.weight", (100, 8), "head", "linear", "vocabulary", 8, 100),
)
MATRICES = 2 * (64 + 32 + 128 + 128)
OTHERS = 2 * 100 * 8 + 2 * (48 + 8)


def a_model(**changed):
    shape = {
        "name": "tiny", "family": "llama", "layers": 2, "hidden": 8, "ffn": 16, "vocabulary": 100,
        "positions": 64, "tied": False, "activation": "silu", "attention": ATTENTION,
        "tensors": TENSORS, "blocks": (Block("attention", LAYERS, ATTENTION.sizes),),
    }  # fmt: skip
    return Model(**{**shape, **changed})


def bill(model=None, context=10, **settings):
    return inference_bill(model or a_model(), InferenceSettings(**settings), context=context)


def line(name, found):
    return next(each for each in found.lines if each.name.startswith(name))


@pytest.mark.parametrize(
    ("weight_type", "n_bytes"),
    [
        ("fp32", 4 * (MATRICES + OTHERS)),
        ("bf16", 2 * (MATRICES + OTHERS)),
        ("fp16", 2 * (MATRICES + OTHERS)),
        ("fp8", round(MATRICES * (1 + 4 / 128**2)) + 2 * OTHERS),
        ("int8", MATRICES + 4 * 2 * (8 + 4 + 16 + 8) + 2 * OTHERS),
        ("int4", round(MATRICES * (0.5 + 2.5 / 128)) + 2 * OTHERS),
        ("nf4", MATRICES * 9 // 16 + 2 * OTHERS),
    ],
)
def test_a_quantized_type_holds_for_matrices_in_layers_and_brings_scales(weight_type, n_bytes):
    assert weight_line(a_model(), InferenceSettings(weight_type=weight_type)).n_bytes == n_bytes


@pytest.mark.parametrize(("weight_type", "gigabytes"), [("nf4", 4.168), ("nf4-double", 3.866)])
def test_llama_2_in_four_bits_has_the_published_size(weight_type, gigabytes):
    model = load_model(ModelSettings(name="llama-2-7b"))
    found = weight_line(model, InferenceSettings(weight_type=weight_type))
    assert found.n_bytes == pytest.approx(gigabytes * 1e9, abs=0.001e9)


def test_gpus_share_what_is_split_and_hold_the_rest():
    split = MATRICES // 2 + 100 * 8
    assert weight_line(a_model(), InferenceSettings(serving_gpus=2)).n_bytes == 2 * (
        split + 2 * (48 + 8)
    )


def test_a_prompt_is_processed_at_once_or_in_chunks():
    found = line("activations", bill(context=10_000, prefill_chunk=0))
    assert found.n_bytes == 10_000 * 2 * (4 * 8 + 3 * 16)
    in_chunks = line("activations", bill(context=10_000))
    assert in_chunks.n_bytes == 8192 * 2 * (4 * 8 + 3 * 16)
    assert in_chunks.high_bytes == round(1.1 * in_chunks.n_bytes)


def test_70b_in_int4_serves_16_x_8k_on_two_a6000_with_prompts_in_chunks() -> None:
    model = load_model(ModelSettings(name="llama-3-70b"))
    served = {"batch": 16, "weight_type": "int4", "serving_gpus": 2}
    whole, chunked = (
        bill(model, 8192, **served, **chunk).n_bytes for chunk in ({"prefill_chunk": 0}, {})
    )
    assert chunked < find_gpu("A6000").memory_bytes < whole


def test_the_bill_adds_up_and_has_the_allocators_reserve_and_the_context():
    found = bill(context=1000)
    names = [each.name for each in found.lines]
    assert names == [
        "weights", "KV cache", "activations of a layer (prompt)", "logits", "CUDA graphs",
        "fragmentation", "CUDA context and libraries",
    ]  # fmt: skip
    held = sum(each.n_bytes for each in found.lines[:5])
    passing = sum(each.n_bytes for each in found.lines[2:4])
    assert found.lines[5].n_bytes == round(0.04 * passing)
    assert found.n_bytes == held + round(0.04 * passing) + 500 * 2**20
    assert found.low_bytes < found.n_bytes < found.high_bytes


def test_a_missing_context_is_a_clear_line():
    with pytest.raises(UsageError, match="context: expected at least 1 token, found 0"):
        bill(context=0)


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [(3, "divisor of the model's 4 heads, found 3"), (8, "divisor of the model's 4 heads")],
)
def test_gpus_that_cannot_share_the_heads_are_refused(gpus, expected):
    with pytest.raises(UsageError, match=expected):
        bill(serving_gpus=gpus)


T5 = {
    "model_type": "t5", "d_model": 64, "d_ff": 128, "num_layers": 3, "num_decoder_layers": 2,
    "num_heads": 4, "d_kv": 8, "vocab_size": 100,
}  # fmt: skip


def test_a_decoder_with_an_encoder_caches_keys_of_both():
    found = bill(model_from_config(T5), context=10)
    own, cross = (each for each in found.lines if each.name.startswith("KV cache"))

    assert own.n_bytes == cross.n_bytes == 2 * 2 * 4 * 8 * 10 * 2
    assert line("learned positions", found).n_bytes == 50 * 10**2


def test_an_encoder_keeps_no_keys_and_gives_the_logits_of_all_tokens():
    config = {"model_type": "bert", "num_hidden_layers": 2, "vocab_size": 100}
    found = bill(model_from_config(config), context=10)

    assert not any(each.name.startswith("KV cache") for each in found.lines)
    assert line("logits", found).symbols["n_logits"] == 10


GIB = 1 << 30
PLAIN = Attention(heads=4, kv_heads=2, head_dim=8)


def of_attention(attention=PLAIN, *, layers=3, positions=0):
    blocks = (Block("attention", tuple(range(layers)), attention.sizes),)
    return Model(
        "tiny", "llama", layers, 32, 64, 100, positions, False, "silu", attention, (),
        blocks=blocks,
    )  # fmt: skip


def cache(model, context, **settings):
    lines = kv_cache_lines(model, InferenceSettings(**settings), context)
    return sum(line.n_bytes for line in lines)


@pytest.mark.parametrize(
    ("name", "context", "gib"),
    [
        ("llama-2-7b", 4096, 2.0),
        ("llama-3-8b", 8192, 1.0),
        ("llama-3-70b", 8192, 2.5),
        ("llama-3.1-405b", 131_072, 63.0),
    ],
)
def test_published_sizes_are_given_exactly(name, context, gib):
    assert cache(load_model(ModelSettings(name=name)), context) == gib * GIB


def test_a_token_of_gpt_oss_takes_what_its_server_logs():
    model = load_model(ModelSettings(name="gpt-oss-120b"))

    assert cache(model, 1) == 73_728
    assert round(5.38 * GIB / 73_728) == 78_352


def test_deepseek_keeps_a_compressed_vector():
    model = load_model(ModelSettings(name="deepseek-v3"))

    assert cache(model, 1) == 70_272


@pytest.mark.parametrize(
    ("kv_type", "share"), [("fp32", 2), ("fp8", 0.5), ("int8", 17 / 32), ("int4", 9 / 32)]
)
def test_a_quantized_cache_holds_scales_too(kv_type, share):
    assert cache(of_attention(), 1000, kv_type=kv_type) == share * cache(of_attention(), 1000)


def test_hugging_faces_falcon_40b_caches_every_query_head() -> None:
    model = load_model(ModelSettings(name="falcon-40b"))
    (line,) = kv_cache_lines(model, InferenceSettings(server="transformers"), 1024)
    assert line.n_bytes == 2 * 60 * 8 * 64 * 1024 * 2  # servers
    assert line.high_bytes == 2 * 60 * 128 * 64 * 1024 * 2
