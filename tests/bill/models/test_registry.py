"""The table of families is that of the settings, and knows model types and architectures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokmill.bill.models import families
from tokmill.bill.models.load import OPTIONS
from tokmill.bill.models.registry import family, family_name
from tokmill.settings.model import FAMILIES


def test_every_choice_of_the_settings_is_a_file_that_declares_the_family_of_its_name() -> None:
    files = {path.stem for path in Path(families.__file__).parent.glob("*.py")} - {"__init__"}

    assert files == set(FAMILIES)
    assert [family(name).name for name in FAMILIES] == list(FAMILIES)


def test_every_architecture_belongs_to_one_family() -> None:
    named = [name for each in FAMILIES for name in family(each).heads]
    assert len(named) == len(set(named))


def test_every_number_that_a_family_needs_is_an_option() -> None:
    needed = {key for name in FAMILIES for key in family(name).needed}
    assert needed <= set(OPTIONS.values())


@pytest.mark.parametrize(
    ("model_type", "architectures", "expected"),
    [
        ("llama", [], "llama"),
        ("gemma3", ["Gemma3ForConditionalGeneration"], "gemma3_text"),
        ("RefinedWebModel", [], "falcon"),
        ("", ["Qwen2MoeForCausalLM"], "qwen2_moe"),
        ("kimi_k2", ["DeepseekV3ForCausalLM"], "deepseek_v3"),
        ("bert", ["BertForMaskedLM"], "bert"),
        ("xlm-roberta", [], "roberta"),
        ("mamba", ["MambaForCausalLM"], ""),
        ("", ["", {}, 3], ""),
    ],
)
def test_a_family_is_found_by_type_and_else_by_architecture(
    model_type: str, architectures: list[object], expected: str
) -> None:
    assert family_name(model_type, architectures) == expected
