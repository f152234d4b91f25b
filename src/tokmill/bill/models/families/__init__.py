"""Families of models: what a configuration makes of tensors, as Hugging Face transformers 5.23.

families.json holds, of each family, the names of its tensors, the defaults of its configuration
class, other names of keys, and its style where it differs from Llama's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokmill.bill.models.decoder import Layer, decoder
from tokmill.bill.models.families import decoders, gpt, t5
from tokmill.bill.models.families.decoders import windows
from tokmill.bill.models.family import WITH_FFN, Family, Fields
from tokmill.bill.models.model import Model, Style


def _families() -> dict[str, Family]:
    """Return the families of families.json by name, with the functions that build them."""
    rows = json.loads(Path(__file__).with_name("families.json").read_text(encoding="utf-8"))
    reads = {**gpt.LAYERS, **decoders.LAYERS, **t5.LAYERS}
    return {
        name: Family(
            name=name,
            build=_build_of(reads[name], _with_tuples(row.get("layer", {}))),
            style=Style(**_with_tuples(row.get("style", {}))),
            defaults=row["defaults"],
            needed=tuple(row.get("needed", WITH_FFN)),
            names=row.get("names", {}),
            implied=row.get("implied", {}),
            other=("add_cross_attention", *row.get("other", ())),
            dense=row.get("dense", {}),
        )
        for name, row in rows.items()
    }


def _with_tuples(row: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a row; JSON has lists for tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}


def _build_of(
    read: Callable[[Fields], Layer], constant: dict[str, Any]
) -> Callable[[Fields], Model]:
    """Return the function that builds a model: its layer as read, with what its row says."""

    def build(f: Fields) -> Model:
        layer = replace(read(f), **constant)
        return decoder(f, replace(layer, windows=windows(f, layer.shape.layers)))

    return build


KNOWN = _families()
"""The families by name: a model_type of transformers, or of the code of the model's authors."""
