"""GGUF files: sizes that llama.cpp publishes, and the types that it gives to tensors."""

from __future__ import annotations

import pytest

from tokmill.bill.models.gguf import gguf_bytes
from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Model
from tokmill.settings.model import ModelSettings

# GiB that `llama-quantize --help` prints for Llama-3-8B; files hold some MB of tokenizer besides.
LLAMA_3_8B = {
    "q4_0": 4.34, "q4_1": 4.78, "q5_0": 5.21, "q5_1": 5.65, "q8_0": 7.96, "q2_k": 2.96,
    "q3_k_m": 3.74, "q4_k_s": 4.37, "q4_k_m": 4.58, "q5_k_s": 5.21, "q5_k_m": 5.33, "q6_k": 6.14,
}  # fmt: skip
# Files on the Hub, in GB.
FILES = {"q4_0": 4.66, "q4_k_m": 4.92, "q5_k_m": 5.73, "q6_k": 6.60, "q8_0": 8.54}
# Files of bartowski on the Hub, in GB, which were looked up after the rules had been written.
HELD_OUT = {
    "mixtral-8x22b": {
        "q5_k_m": 99.96, "q5_k_s": 96.97, "q4_k_m": 85.58, "q4_k_s": 80.47, "q3_k_m": 67.78,
        "q2_k": 52.10,
    },
    "gemma-2-9b": {"q8_0": 9.82},
}  # fmt: skip
# Bits per weight, from the README of llama.cpp's quantize.
LLAMA_2 = {
    "llama-2-7b": {"q3_k_m": 3.91, "q4_k_s": 4.58, "q4_k_m": 4.84, "q5_k_s": 5.52, "q5_k_m": 5.68},
    "llama-2-13b": {"q3_k_m": 3.89, "q4_k_s": 4.56, "q4_k_m": 4.83, "q5_k_s": 5.51, "q6_k": 6.56},
    "llama-2-70b": {"q3_k_m": 3.85, "q4_k_s": 4.53, "q4_k_m": 4.80, "q5_k_m": 5.65, "q6_k": 6.56},
}


def model(name: str) -> Model:
    return load_model(ModelSettings(name=name))


def size(of: Model, file: str) -> float:
    return sum(gguf_bytes(file, tensor, of) * tensor.count for tensor in of.tensors)


@pytest.mark.parametrize(("file", "gibibytes"), LLAMA_3_8B.items())
def test_llama_3_is_within_0_3_percent_of_what_llama_quantize_prints(
    file: str, gibibytes: float
) -> None:
    assert size(model("llama-3-8b"), file) / 2**30 == pytest.approx(gibibytes, rel=0.003)


@pytest.mark.parametrize(("file", "gigabytes"), FILES.items())
def test_llama_3_is_within_0_3_percent_of_files_on_the_hub(file: str, gigabytes: float) -> None:
    assert size(model("llama-3-8b"), file) / 1e9 == pytest.approx(gigabytes, rel=0.003)


@pytest.mark.parametrize(
    ("name", "file", "gigabytes"),
    [(name, file, size) for name, files in HELD_OUT.items() for file, size in files.items()],
)
def test_files_that_shaped_no_rule_are_within_0_03_percent(
    name: str, file: str, gigabytes: float
) -> None:
    assert size(model(name), file) / 1e9 == pytest.approx(gigabytes, rel=0.0003)


@pytest.mark.parametrize(
    ("name", "file", "bits"),
    [(name, file, bits) for name, files in LLAMA_2.items() for file, bits in files.items()],
)
def test_llama_2_has_the_published_bits_per_weight(name: str, file: str, bits: float) -> None:
    of = model(name)
    assert size(of, file) * 8 / of.parameters == pytest.approx(bits, rel=0.003)


def by_name(of: Model, file: str) -> dict[str, float]:
    names = (tensor.name.removesuffix(".weight") for tensor in of.tensors)
    bits = (8 * gguf_bytes(file, tensor, of) for tensor in of.tensors)
    return {name.rpartition(".")[2]: found for name, found in zip(names, bits, strict=True)}


def test_the_head_and_half_of_values_and_down_matrices_have_six_bits() -> None:
    found = by_name(model("llama-3-8b"), "q4_k_m")
    assert found["embed_tokens"] == found["q_proj"] == found["gate_proj"] == 4.5
    assert found["lm_head"] == 6.5625
    assert found["v_proj"] == found["down_proj"] == (4.5 + 6.5625) / 2
    assert found["input_layernorm"] == found["norm"] == 32


def test_a_tied_embedding_has_the_type_of_a_head() -> None:
    assert by_name(model("llama-3.2-1b"), "q4_k_m")["embed_tokens"] == 6.5625
    assert by_name(model("llama-3.2-1b"), "q8_0")["embed_tokens"] == 8.5


def test_learned_positions_biases_and_routers_stay_fp32() -> None:
    found = by_name(model("gpt2"), "q4_0")
    assert (found["wte"], found["c_fc"], found["wpe"]) == (6.5625, 4.5, 32)
    assert by_name(model("mixtral-8x7b"), "q8_0")["gate"] == 32


def test_keys_and_values_of_eight_experts_have_eight_bits() -> None:
    found = by_name(model("mixtral-8x7b"), "q4_k_m")
    assert (found["k_proj"], found["v_proj"], found["o_proj"]) == (8.5, 8.5, 5.5)
    assert found["gate_up_proj"] == 4.5


def test_rows_that_256_does_not_divide_take_blocks_of_32_and_else_16_bit() -> None:
    found = by_name(model("gpt-oss-20b"), "q4_k_s")
    assert (found["q_proj"], found["o_proj"], found["lm_head"]) == (5.5, 4.5, 8.5)
    odd = load_model(
        ModelSettings(family="llama", layers=1, hidden=36, heads=2, ffn=48, vocabulary=9)
    )
    assert by_name(odd, "q6_k")["q_proj"] == 16


@pytest.mark.parametrize(
    ("name", "file", "value", "down", "out"),
    [
        ("llama-3-8b", "q2_k", 4.5, 3.4375, 3.4375),
        ("llama-2-7b", "q2_k", 3.4375, 3.4375, 3.4375),
        ("llama-3-8b", "q3_k_m", (2 * 5.5 + 30 * 4.5) / 32, (2 * 5.5 + 30 * 4.5) / 32, 4.5),
        ("llama-3-8b", "q4_k_s", (4 * 5.5 + 28 * 4.5) / 32, (4 * 5.5 + 28 * 4.5) / 32, 4.5),
        ("llama-3-8b", "q6_k", 6.5625, 6.5625, 6.5625),
    ],
)
def test_a_file_has_its_own_rule_for_values_and_matrices_out_of_a_layer(
    name: str, file: str, value: float, down: float, out: float
) -> None:
    found = by_name(model(name), file)
    assert (found["v_proj"], found["down_proj"], found["o_proj"]) == (value, down, out)
