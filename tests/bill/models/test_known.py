"""The built-in models: their published counts, exactly, and the names that mean them."""

from __future__ import annotations

import pytest

from tokmill.bill.models.known import known_config, known_models, near_models
from tokmill.bill.models.load import load_model
from tokmill.settings.model import ModelSettings

# Published with the models or counted from their files.
PARAMETERS = {
    "apertus-8b": 8_053_338_176,
    "baichuan-13b": 13_264_901_120,
    "baichuan-7b": 7_000_559_616,
    "baichuan2-13b": 13_896_668_160,
    "baichuan2-7b": 7_505_973_248,
    "bert-base-cased": 108_340_804,
    "bert-base-uncased": 109_514_298,
    "bert-large-cased": 333_610_308,
    "bert-large-uncased": 335_174_458,
    "bloom-176b": 176_247_271_424,
    "bloom-1b1": 1_065_314_304,
    "bloom-1b7": 1_722_408_960,
    "bloom-3b": 3_002_557_440,
    "bloom-560m": 559_214_592,
    "bloom-7b1": 7_069_016_064,
    "chatglm2-6b": 6_243_584_000,
    "chatglm3-6b": 6_243_584_000,
    "deepseek-r1": 671_026_404_352,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_404_352,
    "ernie-4.5-0.3b": 360_748_032,
    "ernie-4.5-21b-a3b": 21_825_437_888,
    "exaone-4.0-1.2b": 1_279_391_488,
    "falcon-40b": 41_303_293_952,
    "falcon-7b": 6_921_720_704,
    "flan-t5-base": 247_577_856,
    "flan-t5-large": 783_150_080,
    "flan-t5-small": 76_961_152,
    "flan-t5-xl": 2_849_757_184,
    "flan-t5-xxl": 11_135_332_352,
    "gemma-2-27b": 27_227_128_320,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2b": 2_506_172_416,
    "gemma-3-1b": 999_885_952,
    "gemma-3-270m": 268_098_176,
    "gemma-7b": 8_537_680_896,
    "glm-4-32b-0414": 32_566_081_536,
    "glm-4-9b": 9_399_951_360,
    "glm-4-9b-0414": 9_400_279_040,
    "glm-4.5-air": 106_852_245_504,
    "gpt-neox-20b": 20_554_567_680,
    "gpt-oss-120b": 116_829_156_672,
    "gpt-oss-20b": 20_914_757_184,
    "gpt2": 124_439_808,
    "gpt2-large": 774_030_080,
    "gpt2-medium": 354_823_168,
    "gpt2-xl": 1_557_611_200,
    "granite-3.1-2b": 2_533_531_648,
    "granite-3.1-3b-a800m": 3_298_793_472,
    "granite-3.1-8b": 8_170_848_256,
    "llama-13b": 13_015_864_320,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-2-7b": 6_738_415_616,
    "llama-3-70b": 70_553_706_496,
    "llama-3-8b": 8_030_261_248,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.3-70b": 70_553_706_496,
    "llama-30b": 32_528_943_616,
    "llama-65b": 65_285_660_672,
    "llama-7b": 6_738_415_616,
    "ministral-8b": 8_019_808_256,
    "mistral-7b-v0.1": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-small-22b": 22_247_282_688,
    "mistral-small-24b": 23_572_403_200,
    "mixtral-8x22b": 140_620_634_112,
    "mixtral-8x7b": 46_702_792_704,
    "mt5-base": 582_401_280,
    "mt5-large": 1_229_581_312,
    "mt5-small": 300_176_768,
    "mt5-xl": 3_742_619_648,
    "mt5-xxl": 12_921_057_280,
    "olmo-2-13b": 13_716_198_400,
    "olmo-2-1b": 1_484_916_736,
    "olmo-2-32b": 32_234_279_936,
    "olmo-2-7b": 7_298_617_344,
    "olmo-3-32b": 32_233_522_176,
    "olmo-3-7b": 7_298_011_136,
    "olmoe-1b-7b": 6_919_161_856,
    "opt-1.3b": 1_315_758_080,
    "opt-125m": 125_239_296,
    "opt-13b": 12_853_473_280,
    "opt-2.7b": 2_651_596_800,
    "opt-30b": 29_974_540_288,
    "opt-350m": 331_196_416,
    "opt-6.7b": 6_658_473_984,
    "phi-1.5": 1_418_270_720,
    "phi-2": 2_779_683_840,
    "phi-3-medium-4k": 13_960_238_080,
    "phi-3-mini-128k": 3_821_079_552,
    "phi-3-mini-4k": 3_821_079_552,
    "phi-3.5-mini": 3_821_079_552,
    "phi-4": 14_659_507_200,
    "phi-4-mini": 3_836_021_760,
    "pythia-1.4b": 1_414_647_808,
    "pythia-12b": 11_846_072_320,
    "pythia-14m": 14_067_712,
    "pythia-160m": 162_322_944,
    "pythia-1b": 1_011_781_632,
    "pythia-2.8b": 2_775_208_960,
    "pythia-31m": 30_494_720,
    "pythia-410m": 405_334_016,
    "pythia-6.9b": 6_857_302_016,
    "pythia-70m": 70_426_624,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "qwen2-0.5b": 494_032_768,
    "qwen2-1.5b": 1_543_714_304,
    "qwen2-72b": 72_706_203_648,
    "qwen2-7b": 7_615_616_512,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-72b": 72_706_203_648,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-14b": 14_768_307_200,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-32b": 32_762_123_264,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "roberta-base": 124_697_433,
    "roberta-large": 355_412_057,
    "seed-oss-36b": 36_151_104_512,
    "smollm-1.7b": 1_711_376_384,
    "smollm-135m": 134_515_008,
    "smollm-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm3-3b": 3_075_098_624,
    "stablelm-2-1.6b": 1_644_515_328,
    "stablelm-3b-4e1t": 2_795_443_200,
    "starcoder2-15b": 15_957_889_024,
    "starcoder2-3b": 3_030_371_328,
    "starcoder2-7b": 7_173_923_840,
    "t5-11b": 11_307_321_344,
    "t5-3b": 2_851_598_336,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-small": 60_506_624,
    "tinyllama-1.1b": 1_100_048_384,
    "xlm-roberta-base": 278_295_186,
    "xlm-roberta-large": 560_142_482,
    "yi-34b": 34_388_917_248,
    "yi-6b": 6_061_035_520,
    "yi-9b": 8_829_407_232,
}
# Published in round numbers: the text model of gemma-3 as embedding + rest in its report.
ROUNDED = {
    "gemma-3-12b": (1_012_000_000 + 10_759_000_000, 6_000_000),
    "gemma-3-27b": (1_416_000_000 + 25_600_000_000, 8_000_000),
    "gemma-3-4b": (675_000_000 + 3_209_000_000, 4_000_000),
    "minimind-3": (64_000_000, 500_000),
    "minimind-3-moe": (198_000_000, 500_000),
    "minimind2": (104_000_000, 500_000),
    "minimind2-moe": (145_000_000, 500_000),
    "minimind2-small": (26_000_000, 500_000),
    "opt-66b": (66_000_000_000, 500_000_000),
    "qwen2-57b-a14b": (57_410_000_000, 5_000_000),
}
ACTIVE = {
    "mixtral-8x7b": 12_879_925_248,
    "qwen3-30b-a3b": 3_353_032_704,
    "gpt-oss-20b": 4_187_440_704,
    "deepseek-v3": 37_552_282_624,
    "gpt2": 124_439_808,
}
TIED = (
    "gpt2", "gpt2-medium", "gpt2-xl", "opt-125m", "bloom-560m", "llama-3.2-1b", "qwen2.5-0.5b",
    "qwen3-0.6b", "gemma-2b", "gemma-2-2b", "minimind-3",
)  # fmt: skip


def test_every_built_in_model_has_a_published_count() -> None:
    assert set(known_models()) == set(PARAMETERS) | set(ROUNDED)
    assert list(known_models()) == sorted(known_models())


def test_parameters_are_those_published() -> None:
    found = {name: load_model(ModelSettings(name=name)).parameters for name in PARAMETERS}
    assert found == PARAMETERS


@pytest.mark.parametrize("name", ROUNDED)
def test_parameters_are_those_published_in_round_numbers(name: str) -> None:
    expected, tolerance = ROUNDED[name]
    assert abs(load_model(ModelSettings(name=name)).parameters - expected) <= tolerance


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_leave_out_experts_that_a_token_does_not_choose(name: str) -> None:
    assert load_model(ModelSettings(name=name)).active_parameters == ACTIVE[name]


@pytest.mark.parametrize("name", TIED)
def test_models_with_a_tied_head_have_no_head(name: str) -> None:
    model = load_model(ModelSettings(name=name))

    assert model.tied
    assert "head" not in model.by_module()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("GPT2", "gpt2"),
        ("openai-community/gpt2-xl", "gpt2-xl"),
        ("gpt2_xl", "gpt2-xl"),
        ("meta-llama/Meta-Llama-3-8B", "llama-3-8b"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("meta-llama/Llama-2-7b-hf", "llama-2-7b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("google/gemma-3-1b-pt", "gemma-3-1b"),
        ("tiiuae/falcon-7b-instruct", "falcon-7b"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("bigscience/bloom", "bloom-176b"),
        ("google/t5-v1_1-base", "flan-t5-base"),
        ("google-bert/bert-base-uncased", "bert-base-uncased"),
        ("FacebookAI/xlm-roberta-base", "xlm-roberta-base"),
        ("google-t5/t5-3b", "t5-3b"),
        ("google/mt5-small", "mt5-small"),
        ("HuggingFaceTB/SmolLM3-3B-Base", "smollm3-3b"),
        ("allenai/Olmo-3-1025-7B", "olmo-3-7b"),
        ("stabilityai/stablelm-2-1_6b", "stablelm-2-1.6b"),
        ("zai-org/GLM-4.5-Air", "glm-4.5-air"),
        ("llama-3-9b", None),
        ("anyone/gpt2", None),
        ("anyone/Llama-2-7b-hf", None),
        ("meta-llama/gpt2", None),
        ("", None),
    ],
)
def test_case_separators_and_endings_do_not_matter_but_the_organisation_does(
    name: str, meant: str | None
) -> None:
    found = known_config(name)
    assert (found[0] if found else None) == meant


def test_near_names_are_offered() -> None:
    assert near_models("lama3 8b")[0] == "llama-3-8b"
    assert len(near_models("?")) == 3


def test_built_in_names_differ_without_separators_too() -> None:
    plain = {name.replace("-", "") for name in known_models()}
    assert len(plain) == len(known_models())


@pytest.mark.parametrize("other", ["mistral-7b", "minimind", "tinyllama", "OLMo-2-0425-1B"])
def test_another_name_means_a_built_in_model(other: str) -> None:
    assert known_config(other) is not None


def test_every_built_in_model_has_an_owner() -> None:
    published = {"gpt2-xl": "openai-community", "gpt-oss-20b": "openai", "yi-6b": "01-ai"}
    assert all(known_config(f"{owner}/{name}") for name, owner in published.items())
    assert not any(known_config(f"anyone/{name}") for name in known_models())
