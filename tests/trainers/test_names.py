"""The names that people type lead to a trainer, or to a message that proposes one."""

from __future__ import annotations

import pytest

from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError
from tokmill.tables import TRAINERS

NAMES = {
    "megatron-lm": "megatron",
    "Megatron-LM": "megatron",
    "megatron_core": "megatron",
    "nemo": "nemo",
    "NeMo": "nemo",
    "nemo-automodel": "automodel",
    "llama-factory": "llamafactory",
    "LLaMA-Factory": "llamafactory",
    "llama_factory": "llamafactory",
    "LLaMA Factory": "llamafactory",
    "swift": "ms-swift",
    "ms_swift": "ms-swift",
    "lit-gpt": "litgpt",
    "hf": "datasets",
    "HuggingFace": "datasets",
    "TRL": "trl",
    "Unsloth": "unsloth",
    "MaxText": "maxtext",
    "SkyRL": "skyrl",
    "OLMo": "olmo-core",
    "llm-c": "llm.c",
    "nanoGPT": "nanogpt",
}


@pytest.mark.parametrize(("typed", "name"), NAMES.items())
def test_a_name_that_people_type_is_the_trainers(typed: str, name: str) -> None:
    assert TRAINERS.name_of(typed) == name


def test_every_alias_is_of_a_row_and_is_none_itself() -> None:
    assert set(TRAINERS.aliases.values()) <= set(TRAINERS.rows)
    assert not set(TRAINERS.aliases) & set(TRAINERS.rows)
    assert all(TRAINERS.name_of(alias) == name for alias, name in TRAINERS.aliases.items())


def test_an_export_by_another_name_says_the_trainers_own(single: Dataset, tmp_path) -> None:
    made = single.export("Megatron-LM", tmp_path / "e")
    assert (made.trainer, made.title) == ("megatron", "Megatron-LM")


@pytest.mark.parametrize(
    ("typed", "proposed"),
    [
        ("lamafactory", "llamafactory"),
        ("llama-factry", "llamafactory"),
        ("megatron-lmm", "megatron"),
        ("ms-swit", "ms-swift"),
        ("huggingfaces", "datasets"),
    ],
)
def test_a_message_proposes_the_right_name(
    typed: str, proposed: str, single: Dataset, tmp_path
) -> None:
    with pytest.raises(UsageError, match=rf"did you mean {proposed}\?"):
        single.export(typed, tmp_path / "e")
