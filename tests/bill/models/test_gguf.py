"""GGUF files: the sizes that llama.cpp and others publish."""

from __future__ import annotations

import pytest

from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Model
from tokmill.bill.models.weight_types import gguf_bytes
from tokmill.settings.model import ModelSettings

# GiB that `llama-quantize --help` prints for Llama-3-8B; files hold some MB of tokenizer besides.
LLAMA_3_8B = {
    "q4_0": 4.34, "q4_1": 4.78, "q5_0": 5.21, "q5_1": 5.65, "q8_0": 7.96, "q2_k": 2.96,
    "q3_k_m": 3.74, "q4_k_s": 4.37, "q4_k_m": 4.58, "q5_k_s": 5.21, "q5_k_m": 5.33, "q6_k": 6.14,
}  # fmt: skip
# Files of bartowski on the Hub, in GB, which were looked up after the types had been written.
HELD_OUT = {
    "mixtral-8x22b": {
        "q5_k_m": 99.96, "q5_k_s": 96.97, "q4_k_m": 85.58, "q4_k_s": 80.47, "q3_k_m": 67.78,
        "q2_k": 52.10,
    },
    "gemma-2-9b": {"q8_0": 9.82},
}  # fmt: skip


def model(name: str) -> Model:
    return load_model(ModelSettings(name=name))


def size(of: Model, file: str) -> float:
    return sum(gguf_bytes(file, tensor, of) * tensor.count for tensor in of.tensors)


@pytest.mark.parametrize(("file", "gibibytes"), LLAMA_3_8B.items())
def test_llama_3_is_within_0_35_percent_of_what_llama_quantize_prints(
    file: str, gibibytes: float
) -> None:
    assert size(model("llama-3-8b"), file) / 2**30 == pytest.approx(gibibytes, rel=0.0035)


@pytest.mark.parametrize(
    ("name", "file", "gigabytes"),
    [(name, file, size) for name, files in HELD_OUT.items() for file, size in files.items()],
)
def test_files_that_shaped_no_row_are_within_0_1_percent(
    name: str, file: str, gigabytes: float
) -> None:
    assert size(model(name), file) / 1e9 == pytest.approx(gigabytes, rel=0.001)


def test_rows_that_no_block_divides_have_larger_types() -> None:
    """10.36 GB on the Hub; experts of DeepSeek-V2-Lite are 1,408 wide, blocks are 256."""
    assert size(model("deepseek-v2-lite"), "q4_k_m") / 1e9 == pytest.approx(10.36, rel=0.01)
