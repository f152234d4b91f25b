"""The most that a GPU serves: sequences of a context, and tokens of a batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tokmill.bill.remedies.search import largest
from tokmill.bill.serving.inference import inference_bill

if TYPE_CHECKING:
    from tokmill.bill.gpus import Gpu
    from tokmill.bill.models.model import Model
    from tokmill.settings.inference import InferenceSettings

_MOST_SEQUENCES = 1 << 16
_MOST_UNITS = 1 << 16
_UNIT = 64
"""Contexts are searched in steps of so many tokens."""


@dataclass(frozen=True, slots=True)
class MostServed:
    """The largest batch at the context, and the longest context of the batch; 0 if none fits.

    `is_bounded`: the context is the model's maximum, and more would fit.
    """

    batch: int
    context: int
    is_bounded: bool


def most_served(model: Model, settings: InferenceSettings, gpu: Gpu, context: int) -> MostServed:
    """Return the most whose expected memory fits; `context`: where the settings have none."""
    settings = replace(settings, context=settings.context or context)

    def fits(changed: InferenceSettings) -> bool:
        return inference_bill(model, changed, context=context).n_bytes <= gpu.memory_bytes

    batch = largest(lambda n: fits(replace(settings, batch=n)), _MOST_SEQUENCES)
    most = model.positions or _UNIT * _MOST_UNITS
    units = largest(
        lambda n: fits(replace(settings, context=min(n * _UNIT, most))), -(-most // _UNIT)
    )
    longest = min(units * _UNIT, most)
    return MostServed(batch, longest, longest == most)
