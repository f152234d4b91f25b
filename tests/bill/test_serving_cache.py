import pytest

from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Attention, Model
from tokmill.bill.serving import kv_cache_lines
from tokmill.settings.inference import InferenceSettings
from tokmill.settings.model import ModelSettings

GIB = 1 << 30
PLAIN = Attention(heads=4, kv_heads=2, head_dim=8)


def a_model(attention=PLAIN, *, layers=3, positions=0):
    return Model("tiny", "llama", layers, 32, 64, 100, positions, False, "silu", attention, ())


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
    assert cache(a_model(), 1000, kv_type=kv_type) == share * cache(a_model(), 1000)


def test_hugging_faces_falcon_40b_caches_every_query_head() -> None:
    model = load_model(ModelSettings(name="falcon-40b"))
    (line,) = kv_cache_lines(model, InferenceSettings(), 1024)
    assert line.n_bytes == 2 * 60 * 8 * 64 * 1024 * 2  # servers
    assert line.high_bytes == 2 * 60 * 128 * 64 * 1024 * 2
