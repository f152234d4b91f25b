"""Vision towers: the tensors beside the text model, from a row of towers.json by model_type.

Rows are written as the parts of `stack`. Tokens of images count as tokens of a sequence; what the
tower keeps while it computes them has no formula.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokmill.bill.models.family import Family, Fields
from tokmill.bill.models.model import LLAMA, OTHER_PARTS, Model, Tensor
from tokmill.bill.models.stack import COMMON, Sizes, tensors_of

TOWERS: Mapping[str, Any] = json.loads(
    Path(__file__).with_name("towers.json").read_text(encoding="utf-8")
)
IMAGES = "activations of the vision tower; tokens of images count as tokens of a sequence"
TEXT_WIDTH = "text_config.hidden_size"


def with_tower(model: Model, config: Mapping[str, Any], where: str) -> Model:
    """Return the model with the tensors of its vision tower, if a row describes it.

    Raises:
        UsageError: a number of its configuration is missing or wrong.
    """
    row, vision = TOWERS.get(str(config.get("model_type"))), config.get("vision_config")
    if not row or not isinstance(vision, dict) or config.get("audio_config"):
        return model
    if any(vision.get(key) for key in row.get("other", ())):
        return model
    values = {**row["defaults"], "spatial_merge_size": config.get("spatial_merge_size")}
    values = {key: value for key, value in values.items() if value is not None}
    values = {**row["defaults"], **values, **vision, TEXT_WIDTH: model.hidden}
    family = Family(name=f"{model.family}'s vision tower", build=_none, style=LLAMA, defaults={})
    fields = Fields(values, family, model.name, f"{where}: vision_config")
    sizes = Sizes(fields, {**row["sizes"], "d_text": TEXT_WIDTH}, Sizes(fields, COMMON))
    tensors = tuple(_tensors(row, fields, sizes))
    out = (each for each in model.leaves_out if each != OTHER_PARTS)
    return replace(model, tensors=(*model.tensors, *tensors), leaves_out=(*out, IMAGES))


def _tensors(row: Mapping[str, Any], fields: Fields, sizes: Sizes) -> Iterator[Tensor]:
    """Yield the tensors of each layer of the tower, then those outside its layers."""
    own = tensors_of(sizes, {"kind": "other", "tensors": row["tensors"]})
    for layer in range(sizes.whole("L")):
        for tensor in own:
            yield replace(tensor, name=f"{row['layers']}.{layer}.{tensor.name}")
    yield from tensors_of(sizes, {"kind": "other", "tensors": row["outside"]})
    for key, repeated in row.get("each", {}).items():
        if key == "tensors":
            continue
        numbers = fields.items(key, int)
        for number in range(len(repeated if numbers is None else numbers)):
            for tensor in tensors_of(sizes, {"kind": "other", "tensors": row["each"]["tensors"]}):
                yield replace(tensor, name=f"{tensor.name}.{number}")


def _none(_: Fields) -> Model:
    raise NotImplementedError
