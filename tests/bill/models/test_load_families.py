"""The table of families is that of the settings, and knows model types and architectures."""

from __future__ import annotations

import pytest

from tokmill.bill.models.load import FAMILIES, OPTIONS, family_name
from tokmill.settings.model import FAMILIES as CHOICES


def test_every_choice_of_the_settings_is_a_family() -> None:
    assert set(FAMILIES) == set(CHOICES)


def test_what_a_family_needs_by_numbers_is_an_option() -> None:
    needed = {key for family in FAMILIES.values() for key in family.needed}
    assert needed <= set(OPTIONS.values())


@pytest.mark.parametrize(
    ("model_type", "architectures", "family"),
    [
        ("llama", [], "llama"),
        ("gemma3", ["Gemma3ForConditionalGeneration"], "gemma3_text"),
        ("RefinedWebModel", [], "falcon"),
        ("", ["Qwen2MoeForCausalLM"], "qwen2_moe"),
        ("kimi_k2", ["DeepseekV3ForCausalLM"], "deepseek_v3"),
        ("bert", ["BertForMaskedLM"], ""),
        ("", ["", {}, 3], ""),
    ],
)
def test_a_family_is_found_by_type_and_else_by_architecture(
    model_type: str, architectures: list[object], family: str
) -> None:
    assert family_name(model_type, architectures) == family
