"""Families of models: what a configuration makes of tensors, as Hugging Face transformers 5.23.

families.json holds, of each family, the names of its architectures and tensors, the defaults of its
configuration class, other names of keys, and its style where it differs from Llama's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokmill.bill.models.decoder import Layer, decoder
from tokmill.bill.models.families import bert, decoders, deepseek, gpt, t5
from tokmill.bill.models.family import LANGUAGE, WITH_FFN, Family, Fields, Head, heads
from tokmill.bill.models.model import Model, Style

OTHER_NAMES = {
    "gemma3": "gemma3_text", "RefinedWeb": "falcon", "RefinedWebModel": "falcon",
    "xlm-roberta": "roberta", "camembert": "roberta",
}  # fmt: skip
"""Other model_types of the same families: of a model around the text model, or of old files."""


def family_name(model_type: str, architectures: list[object]) -> str:
    """Return the family of a model_type or an architecture (LlamaForCausalLM), '' if unknown."""
    name = OTHER_NAMES.get(model_type, model_type)
    if name in KNOWN:
        return name
    named = (name for name, of in KNOWN.items() if any(each in architectures for each in of.heads))
    return next(named, "")


def _families() -> dict[str, Family]:
    """Return the families of families.json by name, with the functions that build them."""
    rows = json.loads(Path(__file__).with_name("families.json").read_text(encoding="utf-8"))
    layers: dict[str, Callable[[Fields], Layer]] = {
        **gpt.LAYERS,
        **decoders.LAYERS,
        **deepseek.LAYERS,
    }
    builds: dict[str, Callable[[Fields], Model]] = {**gpt.BUILDS, **bert.BUILDS, **t5.BUILDS}
    builds |= {name: _build_of(read, rows[name]) for name, read in layers.items()}
    return {
        name: Family(
            name=name,
            build=builds[name],
            heads=_heads(row),
            style=_style(**row.get("style", {})),
            defaults=row["defaults"],
            needed=tuple(row.get("needed", WITH_FFN)),
            names=row.get("names", {}),
            implied=row.get("implied", {}),
            other=("add_cross_attention", *row.get("other", ())),
        )
        for name, row in rows.items()
    }


def _build_of(read: Callable[[Fields], Layer], row: dict[str, Any]) -> Callable[[Fields], Model]:
    """Return the function that builds a decoder: its layer as read, with what its row says."""
    constant: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in row.get("layer", {}).items()
    }
    return lambda fields: decoder(fields, replace(read(fields), **constant))


def _heads(row: dict[str, Any]) -> dict[str, Head]:
    """Return the architectures of a row: with a language model's head, own ones, and usual ones."""
    own = row.get("own_heads", {}).items()
    found = dict.fromkeys(row.get("language", ()), LANGUAGE)
    found |= {
        name: Head(**{**head, "renamed": tuple(head.get("renamed", ("", "")))})
        for name, head in own
    }
    for start in row.get("architectures", ()):
        found |= heads(start, **row.get("heads", {}))
    return found


def _style(
    *, kernels: Any = ("flash", "sdpa", "eager"), inputs: Any = (3, 2), **style: Any
) -> Style:
    """Return Llama's style with what a row changes; JSON has lists for tuples."""
    return Style(**{"measured": True, **style}, kernels=tuple(kernels), inputs=tuple(inputs))


KNOWN = _families()
"""The families by name: a model_type of transformers, or of the code of the model's authors."""
