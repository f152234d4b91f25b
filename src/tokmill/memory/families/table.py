"""The families by name: a new one is a builder, a row here and a choice of the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.memory.families import gpt, llama, mixtures, own_code

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokmill.memory.families.fields import Family

FAMILIES: Mapping[str, Family] = (
    gpt.FAMILIES | llama.FAMILIES | mixtures.FAMILIES | own_code.FAMILIES
)
OTHER_NAMES = {"gemma3": "gemma3_text", "RefinedWeb": "falcon", "RefinedWebModel": "falcon"}
"""Other model_types of the same families: of a model around the text model, or of old files."""


def family_name(model_type: str, architectures: list[object]) -> str:
    """Return the family of a model_type or an architecture (LlamaForCausalLM), '' if unknown."""
    name = OTHER_NAMES.get(model_type, model_type)
    if name in FAMILIES:
        return name
    known = ((family.architecture, name) for name, family in FAMILIES.items())
    return next((name for made, name in known if made and made in architectures), "")
