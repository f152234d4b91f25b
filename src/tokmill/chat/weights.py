"""Which tokens are trained: the weight of every segment of a sample in the loss.

The weight of a turn is decided in this order:

    record   a message's `train`, `weight`, `masked`, …, times the record's own `weight`; within the
             message, a part of its content may have a weight that multiplies it
    prompt   0 for messages of `prompt` beside `completion`; with --samples turn, 0 for all messages
             but the last reply
    rule     where the record gives none (None): 1 for the roles of --roles in the turns of --turns

Within a turn, a segment has the turn's weight if the rule trains its kind (content, header, end of
turn, …), else 0. A preset is the rule of one framework: they disagree on the tokens around a turn.
The table follows what their code does with a conversation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.chat.conversation import ChatError, count_differs
from tokmill.chat.names import SWITCH_KEYS, WEIGHT_KEYS, wrong_type
from tokmill.chat.segments import ROLES, Kind
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from tokmill.chat.conversation import Conversation, Message
    from tokmill.chat.segments import SegmentTable
    from tokmill.settings.sft import SftSettings

NEXT_ROLE = "next-role"
"""The value of --eot that also trains the token of the next role, where it ends a turn."""

EVERYTHING = "everything"
"""The value of --turns that trains every token, as language modelling does."""

NOT_TRAINED = 0.0

_KINDS_BY_SETTING = {
    "header": (Kind.HEADER, Kind.HEADER_INSIDE),
    "reasoning": (Kind.REASONING,),
    "tool_calls": (Kind.TOOL_CALL,),
    "eot": (Kind.EOT, Kind.EOT_OUTSIDE),
    "suffix": (Kind.SUFFIX, Kind.SUFFIX_OUTSIDE),
}
"""Settings that train or mask some kinds, against the preset."""


@dataclass(frozen=True, slots=True)
class Preset:
    """The defaults of a framework; settings override them.

    `trained`: the kinds that count in the loss. `template`: the built-in template that goes with
    it; '' for the tokenizer's own.
    """

    boundary: str
    trained: frozenset[Kind]
    template: str = ""


_REPLY = frozenset({Kind.HEADER_INSIDE, Kind.CONTENT, Kind.REASONING, Kind.TOOL_CALL, Kind.EOT})

_PRESETS = {
    "tokmill": Preset("split", _REPLY | {Kind.EOT_OUTSIDE}),
    "trl": Preset("joint", _REPLY | {Kind.SUFFIX}),
    "llamafactory": Preset("split", _REPLY | {Kind.EOT_OUTSIDE, Kind.SUFFIX, Kind.SUFFIX_OUTSIDE}),
    "torchtune": Preset("split", _REPLY | {Kind.HEADER, Kind.SUFFIX}, "torchtune"),
    "nanochat": Preset("split", _REPLY, "nanochat"),
    "minimind": Preset("joint", _REPLY | {Kind.SUFFIX}, "minimind"),
    "baby-llama2": Preset("split", _REPLY, "baby-llama2"),
}


@dataclass(frozen=True, slots=True)
class MaskRule:
    """A preset with the settings applied: `trained` by kind, `roles` by number of the role."""

    trained: npt.NDArray[np.bool_]
    roles: npt.NDArray[np.bool_]
    boundary: str
    turns: str
    append_eos: str
    template: str


def mask_rule(settings: SftSettings) -> MaskRule:
    """Return the rule that the settings describe; refuse settings that contradict each other."""
    preset = _PRESETS[settings.preset]
    trained = np.zeros(len(Kind), bool)
    trained[list(preset.trained)] = True
    if settings.turns == EVERYTHING:
        _check_everything(settings)
        trained[:] = True
    for name, kinds in _KINDS_BY_SETTING.items():
        if (choice := getattr(settings, name)) != "preset":
            trained[list(kinds)] = choice != "mask"
    append_eos = "no" if settings.append_eos == "preset" else settings.append_eos
    trained[Kind.END] = append_eos == "train"
    unknown = [role for role in settings.roles if role not in ROLES]
    if unknown:
        known = ", ".join(ROLES)
        raise UsageError(f"unknown role {unknown[0]!r}; known: {known}", "sft.roles")
    return MaskRule(
        trained,
        np.isin(ROLES, settings.roles) | (settings.turns == EVERYTHING),
        preset.boundary if settings.boundary == "preset" else settings.boundary,
        "all" if settings.turns == "preset" else settings.turns,
        append_eos,
        preset.template,
    )


def _check_everything(settings: SftSettings) -> None:
    """Check that no setting masks a part of "everything"."""
    masked = [name for name in _KINDS_BY_SETTING if getattr(settings, name) == "mask"]
    if masked:
        raise UsageError("mask contradicts --turns=everything: leave one out", f"sft.{masked[0]}")
    if settings.roles != ("assistant",):
        raise UsageError("--turns=everything trains all roles: leave one out", "sft.roles")
    if settings.samples == "turn":
        raise UsageError(
            "turn trains one turn of each sample, which contradicts --turns=everything: leave one "
            "out",
            "sft.samples",
        )


def segment_weights(
    table: SegmentTable, rule: MaskRule
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """Return the weight of each segment, and whether a trained turn ends behind it.

    Both have shape (n_segments,); the weights are float32.
    """
    turns = table.turns
    chosen = rule.roles[table.roles]
    if rule.turns not in ("all", EVERYTHING):
        chosen &= _is_late(table, chosen, rule.turns)
    weight_of_turn = np.where(np.isnan(table.turn_weights), chosen, table.turn_weights)
    of_part = np.where(np.isnan(table.turn_weights), 1, table.turn_weights)[turns] * table.factors
    weights = np.where(np.isnan(table.factors), weight_of_turn[turns], of_part)
    weights = np.where(rule.trained[table.kinds], weights, 0).astype(np.float32)
    is_last = np.ones(len(turns), bool)
    is_last[:-1] = turns[1:] != turns[:-1]
    return weights, is_last & (weight_of_turn[turns] > 0)


def _is_late(
    table: SegmentTable, chosen: npt.NDArray[np.bool_], turns: str
) -> npt.NDArray[np.bool_]:
    """Return which turns come after the last user turn of their sample.

    With `turns` "last": which come after its last chosen turn, or are that turn.
    """
    is_limit = chosen if turns == "last" else table.roles == ROLES.index("user")
    last = np.full(int(table.samples.max(initial=-1)) + 1, -1, np.int64)
    np.maximum.at(last, table.samples[is_limit], np.flatnonzero(is_limit))
    late: npt.NDArray[np.bool_] = np.arange(len(table.samples)) >= last[table.samples]
    return late


_NUMBERS = ("weight", "loss_weight", "loss_mask", "loss", "loss_scale")
_OF_MESSAGE, _OF_RECORD = frozenset(SWITCH_KEYS), frozenset(WEIGHT_KEYS)
_LARGEST = 3.4028234663852886e38  # of float32, as .weight files have it


def message_weight(item: Mapping[str, Any], settings: SftSettings, where: str) -> float | None:
    """Return the weight that a message of a record, or a part of it, gives; None if it gives none.

    Several of `SWITCH_KEYS` multiply.
    """
    if _OF_MESSAGE.isdisjoint(item):
        return None
    product: float | None = None
    for key in SWITCH_KEYS:
        value = item.get(key)
        if value is None:
            continue
        if key in _NUMBERS:
            weight = _number(value, settings, f"{where}: {key}")
        elif isinstance(value, bool):
            weight = float(value != (key == "masked"))
        else:
            raise wrong_type(f"{where}: {key}", "true or false", value)
        product = weight if product is None else product * weight
    return product


def prompt_weights(weights: Sequence[float | None]) -> list[float | None]:
    """Return the weights of a prompt's messages, all 0; refuse a message that gives another."""
    for number, weight in enumerate(weights, 1):
        if weight:
            raise ChatError(
                "contradictory weights",
                f"prompt message {number}: expected no weight in a prompt, which is not trained, "
                f"found {weight}",
            )
    return [NOT_TRAINED] * len(weights)


def times_record_weight(
    record: Mapping[str, Any],
    messages: Sequence[Message],
    weights: list[float | None],
    settings: SftSettings,
) -> list[float | None]:
    """Return the weights of messages times the record's own `weight` or `loss_weight`.

    A message without a weight takes the record's if its role is trained.
    """
    if _OF_RECORD.isdisjoint(record):
        return weights
    key = "weight" if record.get("weight") is not None else "loss_weight"
    if record.get(key) is None:
        return weights
    factor = _number(record[key], settings, key)
    if factor == 1:
        return weights
    if factor == 0:
        return [NOT_TRAINED] * len(weights)
    if settings.turns not in ("preset", "all"):
        raise ChatError(
            "fractional weight",
            f"{key}: expected 0 or 1 with turns = {settings.turns}, found {factor}; "
            "put weights at the messages",
        )
    where = "weight of a message times that of its record"
    return [
        (factor if message["role"] in settings.roles else None)
        if weight is None
        else _number(weight * factor, settings, where)
        for weight, message in zip(weights, messages, strict=True)
    ]


def last_reply_weights(conversation: Conversation, i: int) -> list[float | None] | None:
    """Return weights for a sample that ends with message `i`: 0 for all messages but this one.

    None if that message is not trained: it is not a reply, or its weight in the record is 0.
    """
    weight = conversation.weights[i]
    if conversation.messages[i]["role"] != "assistant" or weight == 0:
        return None
    return [*([NOT_TRAINED] * i), weight]


def span_weights(
    conversation: Conversation, replies: Sequence[int], n_spans: int
) -> list[float | None]:
    """Return the weight of each span that a Jinja template marks; `replies`: their messages.

    Refuses a record that trains another role, or weighs replies that cannot be matched with spans.
    """
    said = conversation.weights if any(conversation.weights) else ()  # nearly always none
    weighed = [
        *((f"message {i + 1}", conversation.messages[i], weight) for i, weight in enumerate(said)),
        *(("a part of a message", part.message, part.factor) for part in conversation.parts),
    ]
    for what, message, weight in weighed:
        if weight and (role := message["role"]) != "assistant":
            raise ChatError(
                "weight of another role",
                f"{what} ({role}) has weight {weight}, and a Jinja template shows what the "
                "assistant says alone: use a built-in --template",
            )
    weights = [conversation.weights[i] for i in replies]
    if n_spans == len(replies):
        return weights
    if any(weight is not None for weight in weights):
        raise count_differs(len(replies), n_spans)
    return [None] * n_spans


def whole_text_weight(conversation: Conversation) -> float | None:
    """Return the weight that all messages share, for a text whose turns are unknown."""
    weights = set(conversation.weights)
    if len(weights) == 1:
        return weights.pop()
    raise ChatError(
        "weight of another role",
        "messages have weights of their own, and a Jinja template does not show what all roles "
        "say: use a built-in --template, or train the replies alone",
    )


def _number(value: Any, settings: SftSettings, where: str) -> float:
    """Return a weight that float32 can hold; the comparison also refuses NaN."""
    if not isinstance(value, int | float) or not 0 <= value <= _LARGEST:
        raise wrong_type(where, "a weight of 0 or more, or true or false", value)
    if value not in (0, 1) and settings.weights == "refuse":
        raise ChatError(
            "fractional weight",
            f"{where}: expected 0 or 1, found {value}; --weights file keeps other weights",
        )
    return float(value)
