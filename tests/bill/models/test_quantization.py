"""Quantized weights: quantization_config and GGUF files, against published sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tokmill.bill.models.known import known_config
from tokmill.bill.models.load import load_model, model_from_config
from tokmill.bill.models.model import Model
from tokmill.bill.models.weight_types import gguf_bytes
from tokmill.errors import UsageError
from tokmill.settings.training import ModelSettings

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True, "sym": True}
NF4 = {
    "quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
    "bnb_4bit_use_double_quant": True,
}  # fmt: skip
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
PACKED = {
    "quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": 4, "type": "int", "strategy": "group", "group_size": 128,
                "symmetric": True,
            },
        }
    },
}  # fmt: skip


def quantized(name: str, config: Any, **more: Any) -> Model:
    known = known_config(name)
    assert known is not None
    return model_from_config({**known[1], "quantization_config": config, **more})


def size(model: Model) -> float:
    return sum(tensor.count * (tensor.stored_bytes or 2) for tensor in model.tensors)


@pytest.mark.parametrize(
    ("name", "config", "gigabytes"),
    [
        ("llama-3-8b", AWQ, 5.73),
        ("llama-3-8b", GPTQ, 5.73),
        ("llama-3-8b", NF4, 5.70),
        ("llama-2-7b", AWQ, 3.89),
        ("llama-2-7b", GPTQ, 3.90),
        ("mistral-7b-v0.1", AWQ, 4.15),
        ("qwen2.5-7b", AWQ, 5.57),
    ],
)
def test_the_weights_are_within_0_3_percent_of_the_published_file(
    name: str, config: dict[str, Any], gigabytes: float
) -> None:
    assert size(quantized(name, config)) / 1e9 == pytest.approx(gigabytes, rel=0.003)


def test_gpt_oss_has_the_bytes_of_its_files_exactly() -> None:
    """`total_size` of model.safetensors.index.json."""
    published = {"gpt-oss-20b": 13_761_264_768, "gpt-oss-120b": 65_248_815_744}
    for name, n_bytes in published.items():
        assert size(load_model(ModelSettings(name=name))) == n_bytes


def test_deepseek_v3_has_the_bytes_of_its_files_without_the_layer_of_next_tokens() -> None:
    """688,586,727,753 B on the Hub: layer 61 has embedding and head a second time."""
    model = load_model(ModelSettings(name="deepseek-v3"))
    last = sum(t.size * (t.stored_bytes or 2) for t in model.tensors if t.layers and 60 in t.layers)
    beside = 2 * 2 * 129280 * 7168 + 2 * 2 * 7168 * 7168
    assert size(model) + last + beside == pytest.approx(688_586_727_753, rel=1e-4)


def by_name(model: Model) -> dict[str, float]:
    return {tensor.name: tensor.stored_bytes for tensor in model.tensors}


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ("modules_to_not_convert", ["model.layers.*.self_attn"]),
        ("llm_int8_skip_modules", ["q_proj", "k_proj", "v_proj", "o_proj"]),
        ("ignore", ["re:.*self_attn.*"]),
        ("dynamic", {"-:.*self_attn.*": {}}),
    ],
)
def test_named_modules_stay_in_16_bit(key: str, names: object) -> None:
    found = by_name(quantized("llama-3-8b", {**AWQ, key: names}))
    assert not any(n_bytes for name, n_bytes in found.items() if "self_attn" in name)
    assert found["model.layers.{}.mlp.up_proj.weight"] == 0.5 + 2.5 / 128


@pytest.mark.parametrize(
    ("config", "element"),
    [
        ({**AWQ, "group_size": -1}, 0.5 + 2.5 / 4096),
        ({**AWQ, "group_size": 64}, 0.5 + 2.5 / 64),
        ({**GPTQ, "bits": 8}, 1 + 3 / 128 + 4 / 4096),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 0.5625),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 1 + 4 / 4096),
        ({**AWQ, "quant_method": "auto-round"}, 0.5 + 2.5 / 128),
        (FP8, 1 + 4 / 128**2),
        ({"quant_method": "fp8"}, 1.0),
        (PACKED, 0.5 + 2 / 128),
    ],
)
def test_an_element_has_the_bytes_of_its_method_with_scales(
    config: dict[str, Any], element: float
) -> None:
    model = quantized("llama-3-8b", config)
    assert by_name(model)["model.layers.{}.self_attn.q_proj.weight"] == element
    assert model.stored is not None
    assert model.stored.note.endswith("(quantization_config)")


@pytest.mark.parametrize("method", ["hqq", "", None, ["awq"]])
def test_a_method_that_is_not_known_is_a_warning_and_16_bit(method: object) -> None:
    model = quantized("llama-3-8b", {"quant_method": method, "bits": 4})
    assert size(model) == 2 * 8_030_261_248
    assert "is not read: weights are billed in 16 bit; give --weight-type" in model.warnings[0]


def test_several_layouts_in_one_model_are_not_read() -> None:
    groups = {"a": PACKED["config_groups"]["group_0"], "b": {}}
    assert quantized("llama-3-8b", {**GPTQ, "dynamic": {"+:.*down.*": {"bits": 8}}}).warnings
    assert quantized("llama-3-8b", {**PACKED, "config_groups": groups}).warnings


@pytest.mark.parametrize(
    "config",
    [
        {**AWQ, "bits": "4"},
        {**AWQ, "bits": 5},
        {**AWQ, "group_size": 0},
        {"quant_method": "gptq", "bits": "4"},
        {**FP8, "weight_block_size": [128]},
        {**FP8, "weight_block_size": [0, 128]},
        {**AWQ, "modules_to_not_convert": [3]},
        {**AWQ, "modules_to_not_convert": ["("]},
        {**PACKED, "config_groups": []},
    ],
)
def test_a_wrong_value_is_one_line(config: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"quantization_config of .*: cannot be read \(") as error:
        quantized("llama-3-8b", config)
    assert "\n" not in str(error.value)


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


def known(name: str) -> Model:
    return load_model(ModelSettings(name=name))


def size_of(of: Model, file: str) -> float:
    return sum(gguf_bytes(file, tensor, of) * tensor.count for tensor in of.tensors)


@pytest.mark.parametrize(("file", "gibibytes"), LLAMA_3_8B.items())
def test_llama_3_is_within_0_35_percent_of_what_llama_quantize_prints(
    file: str, gibibytes: float
) -> None:
    assert size_of(known("llama-3-8b"), file) / 2**30 == pytest.approx(gibibytes, rel=0.0035)


@pytest.mark.parametrize(
    ("name", "file", "gigabytes"),
    [(name, file, size_of) for name, files in HELD_OUT.items() for file, size_of in files.items()],
)
def test_files_that_shaped_no_row_are_within_0_1_percent(
    name: str, file: str, gigabytes: float
) -> None:
    assert size_of(known(name), file) / 1e9 == pytest.approx(gigabytes, rel=0.001)


def test_rows_that_no_block_divides_have_larger_types() -> None:
    """10.36 GB on the Hub; experts of DeepSeek-V2-Lite are 1,408 wide, blocks are 256."""
    assert size_of(known("deepseek-v2-lite"), "q4_k_m") / 1e9 == pytest.approx(10.36, rel=0.01)


NVFP4 = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
STATIC_FP8 = {"dynamic": False, "num_bits": 8, "type": "float"}


def modelopt(weights: dict[str, Any], *ignore: str, **more: Any) -> dict[str, Any]:
    group = {"weights": weights, "input_activations": weights, "targets": ["Linear"]}
    groups = {"config_groups": {"group_0": group}, "ignore": ["lm_head", *ignore]}
    return {"quant_method": "modelopt", "producer": {"name": "modelopt"}, **groups, **more}


@pytest.mark.parametrize(("weights", "each"), [(NVFP4, 0.5625), (STATIC_FP8, 1.0)])
@pytest.mark.parametrize("named", [True, False])
def test_files_of_modelopt_have_their_own_bytes(
    weights: dict[str, Any], each: float, named: bool
) -> None:
    config = modelopt(weights)
    if not named:  # the method is then that of the producer
        del config["quant_method"]
    model = quantized("llama-3-8b", config)
    linear = sum(t.count for t in model.tensors if t.kind == "linear" and t.module != "head")
    assert size(model) == pytest.approx(each * linear + 2 * (model.parameters - linear))
    assert not model.warnings


def test_a_star_stands_for_the_rest_of_a_name_with_or_without_the_language_model() -> None:
    whole = quantized("llama-3-8b", modelopt(NVFP4))
    for prefix in ("model.", "model.language_model.", "language_model.model."):
        kept = quantized("llama-3-8b", modelopt(NVFP4, f"{prefix}layers.1*", "*.o_proj"))
        found = {tensor.name.partition("{}.")[2]: tensor.stored_bytes for tensor in kept.tensors}
        # Layers 1 and 10 to 19 are kept.
        assert found["mlp.up_proj.weight"] == pytest.approx((11 * 2 + 21 * 0.5625) / 32)
        assert found["self_attn.o_proj.weight"] == 0
        assert size(kept) > size(whole)


def test_groups_of_named_matrices_have_each_its_bytes_and_others_stay_in_16_bit() -> None:
    groups = {
        "group_0": {"weights": STATIC_FP8, "targets": ["model.layers.0.self_attn.q_proj"]},
        "group_1": {"weights": NVFP4, "targets": ["model.layers.0.mlp*", "model.layers.1.mlp*"]},
    }
    model = quantized("llama-3-8b", modelopt(NVFP4) | {"config_groups": groups})
    found = {tensor.name.partition("{}.")[2]: tensor.stored_bytes for tensor in model.tensors}
    assert found["self_attn.q_proj.weight"] == pytest.approx((1 + 31 * 2) / 32)
    assert found["mlp.up_proj.weight"] == pytest.approx((2 * 0.5625 + 30 * 2) / 32)
    assert found["self_attn.k_proj.weight"] == 0


def test_another_layout_of_modelopt_is_said() -> None:
    mixed = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "config_groups": {}}
    (warning,) = quantized("llama-3-8b", mixed).warnings
    assert "quantization_config of modelopt is not read" in warning


def test_modelopt_may_say_the_layout_in_a_file_beside_the_configuration(tmp_path: Path) -> None:
    known = known_config("llama-3-8b")
    assert known is not None
    (tmp_path / "config.json").write_text(json.dumps(known[1]))
    (tmp_path / "hf_quant_config.json").write_text(
        json.dumps({
            "producer": {"name": "modelopt"},
            "quantization": {
                "quant_algo": "NVFP4", "group_size": 16,
                "exclude_modules": ["lm_head", "model.layers.4.self_attn.q_proj"],
            },
        })
    )  # fmt: skip
    for path in (tmp_path, tmp_path / "config.json"):
        model = load_model(ModelSettings(name=str(path)))
        found = {tensor.name.partition("{}.")[2]: tensor.stored_bytes for tensor in model.tensors}
        assert found["mlp.up_proj.weight"] == 0.5625
        assert found["self_attn.q_proj.weight"] == pytest.approx((31 * 0.5625 + 2) / 32)
    (tmp_path / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "NEW"}}')
    (warning,) = load_model(ModelSettings(name=str(tmp_path))).warnings
    assert "is not read" in warning
