"""Switches in a record: what it says itself about the weight of a turn, or of all, in the loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.chat.conversation import ChatError
from tokmill.chat.keys import SWITCH_KEYS, WEIGHT_KEYS
from tokmill.chat.values import wrong_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokmill.chat.conversation import Message
    from tokmill.settings.schema import SftSettings

_BOOLEANS = ("train", "training")
_NUMBERS = ("weight", "loss_weight", "loss_mask")
_SWITCHES = frozenset(SWITCH_KEYS)
_OF_SAMPLE = frozenset(WEIGHT_KEYS)
_LARGEST = 3.4028234663852886e38  # of float32: in .weight files


def turn_weight(item: Mapping[str, Any], settings: SftSettings, where: str) -> float | None:
    """Give the weight that a message says it has, None where it says nothing.

    The first that is there and not null wins: `train`, `training`, `weight`, `loss_weight`,
    `loss_mask`, `masked`.

    Raises:
        ChatError: "wrong type", or "fractional weight" where the settings refuse such.
    """
    if _SWITCHES.isdisjoint(item):
        return None
    for key in _BOOLEANS:
        if (value := item.get(key)) is not None:
            return float(_boolean(value, f"{where}: {key}"))
    for key in _NUMBERS:
        if (value := item.get(key)) is not None:
            return _number(value, settings, f"{where}: {key}")
    if (value := item.get("masked")) is not None:
        return float(not _boolean(value, f"{where}: masked"))
    return None


def weigh_sample(
    record: Mapping[str, Any],
    messages: Sequence[Message],
    weights: list[float | None],
    settings: SftSettings,
) -> list[float | None]:
    """Give the weights of the messages times the record's own `weight` or `loss_weight`.

    A turn that says nothing stays with the mask rule at 1, is 0 at 0, and at another weight has
    that one if its role is trained.

    Raises:
        ChatError: as `turn_weight`; and for a fractional weight when not all turns are trained.
    """
    if _OF_SAMPLE.isdisjoint(record):
        return weights
    key = "weight" if record.get("weight") is not None else "loss_weight"
    if record.get(key) is None:
        return weights
    weight = _number(record[key], settings, key)
    if weight == 1:
        return weights
    if weight == 0:
        return [0.0] * len(weights)
    if settings.turns not in ("preset", "all"):
        raise ChatError(
            "fractional weight",
            f"{key}: expected 0 or 1 with turns = {settings.turns}, found {weight}; "
            "put weights at the messages",
        )
    return [
        _times(own, weight, message["role"] in settings.roles, settings)
        for own, message in zip(weights, messages, strict=True)
    ]


def _times(
    own: float | None, weight: float, is_trained: bool, settings: SftSettings
) -> float | None:
    if own is None:
        return weight if is_trained else None
    return _number(own * weight, settings, "weight of a message times that of its record")


def _boolean(value: Any, where: str) -> bool:
    if isinstance(value, bool):
        return value
    raise wrong_type(where, "true or false", value)


def _number(value: Any, settings: SftSettings, where: str) -> float:
    """Give a weight as float32 can hold it; NaN fails the comparison."""
    if not isinstance(value, int | float) or not 0 <= value <= _LARGEST:
        raise wrong_type(where, "a weight of 0 or more, or true or false", value)
    if value not in (0, 1) and settings.weights == "refuse":
        raise ChatError(
            "fractional weight",
            f"{where}: expected 0 or 1, found {value}; --weights file keeps other weights",
        )
    return float(value)
