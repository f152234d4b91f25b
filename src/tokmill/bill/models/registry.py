"""The families of models by name: listed in settings.model.FAMILIES, each a file of its name."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib import import_module

from tokmill.bill.models.family import Family
from tokmill.settings.model import FAMILIES

OTHER_NAMES = {
    "gemma3": "gemma3_text", "RefinedWeb": "falcon", "RefinedWebModel": "falcon",
    "xlm-roberta": "roberta", "camembert": "roberta",
}  # fmt: skip
"""Other model_types of the same families: of a model around the text model, or of old files."""


@cache
def family(name: str) -> Family:
    """Return the specification in the file of a family."""
    found: Family = import_module(f"tokmill.bill.models.families.{name}").FAMILY
    return replace(found, name=name)


def family_name(model_type: str, architectures: list[object]) -> str:
    """Return the family of a model_type or an architecture (LlamaForCausalLM), '' if unknown."""
    name = OTHER_NAMES.get(model_type, model_type)
    if name in FAMILIES:
        return name
    held = (name for name in FAMILIES if any(one in architectures for one in family(name).heads))
    return next(held, "")
