"""The weight of every token in the loss: from record, role, turn and kind of segment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.chat.conversation import ChatError
from tokmill.chat.reading.names import SWITCH_KEYS, WEIGHT_KEYS
from tokmill.chat.reading.values import wrong_type
from tokmill.chat.segments import ROLES, Kind
from tokmill.errors import UsageError
from tokmill.settings.names import flag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from tokmill.chat.conversation import Conversation, Message
    from tokmill.chat.segments import SegmentTable
    from tokmill.settings.schema import SftSettings

EVERYTHING = "everything"
"""The setting of turns that trains every token, as language modelling does."""

_KINDS_BY_SETTING = {
    "header": (Kind.HEADER,),
    "reasoning": (Kind.REASONING,),
    "tool_calls": (Kind.TOOL_CALL,),
    "eot": (Kind.EOT, Kind.EOT_OUTSIDE),
    "suffix": (Kind.SUFFIX, Kind.SUFFIX_OUTSIDE),
}
"""Settings that say for some kinds whether they are trained."""


@dataclass(frozen=True, slots=True)
class Preset:
    """What a framework does where the settings do not say otherwise.

    `trained`: the kinds that count in the loss. `template`: the built-in template that goes with
    it; '': the tokenizer's own. `alone`: every message's text begins with a token of its own.
    """

    boundary: str
    trained: frozenset[Kind]
    template: str = ""
    append_eos: str = "no"
    alone: bool = False


_REPLY = frozenset({Kind.CONTENT, Kind.REASONING, Kind.TOOL_CALL, Kind.EOT})

_PRESETS = {
    "tokmill": Preset("split", _REPLY | {Kind.EOT_OUTSIDE}),
    "trl": Preset("joint", _REPLY | {Kind.SUFFIX}),
    "llamafactory": Preset("split", _REPLY | {Kind.EOT_OUTSIDE, Kind.SUFFIX, Kind.SUFFIX_OUTSIDE}),
    "torchtune": Preset("split", _REPLY | {Kind.HEADER, Kind.SUFFIX}, "torchtune", alone=True),
    "nanochat": Preset("split", _REPLY, "nanochat"),
    "minimind": Preset("joint", _REPLY | {Kind.SUFFIX}, "minimind"),
    "baby-llama2": Preset("split", _REPLY, "baby-llama2"),
}


@dataclass(frozen=True, slots=True)
class MaskRule:
    """A preset with the settings' switches applied.

    `trained`: (number of kinds,) bool. `roles`: (number of roles,) bool.
    """

    trained: npt.NDArray[np.bool_]
    roles: npt.NDArray[np.bool_]
    boundary: str
    turns: str
    append_eos: str
    template: str
    alone: bool


def mask_rule(settings: SftSettings) -> MaskRule:
    """Give the rule that the settings describe.

    Raises:
        UsageError: an unknown role, or settings that contradict each other.
    """
    preset = _PRESETS[settings.preset]
    trained = np.zeros(len(Kind), bool)
    trained[list(preset.trained)] = True
    if settings.turns == EVERYTHING:
        _check_everything(settings)
        trained[:] = True
    for name, kinds in _KINDS_BY_SETTING.items():
        if (switch := getattr(settings, name)) != "preset":
            trained[list(kinds)] = switch == "train"
    append_eos = preset.append_eos if settings.append_eos == "preset" else settings.append_eos
    trained[Kind.END] = append_eos == "train"
    unknown = [role for role in settings.roles if role not in ROLES]
    if unknown:
        raise UsageError(
            f"--roles (sft.roles): unknown role {unknown[0]!r}; known: {', '.join(ROLES)}"
        )
    return MaskRule(
        trained,
        np.isin(ROLES, settings.roles) | (settings.turns == EVERYTHING),
        preset.boundary if settings.boundary == "preset" else settings.boundary,
        "all" if settings.turns == "preset" else settings.turns,
        append_eos,
        preset.template,
        preset.alone,
    )


def _check_everything(settings: SftSettings) -> None:
    """Check that no setting leaves out what "everything" trains.

    Raises:
        UsageError: one does.
    """
    masked = [name for name in _KINDS_BY_SETTING if getattr(settings, name) == "mask"]
    if masked:
        raise UsageError(
            f"{flag('sft', masked[0])} (sft.{masked[0]}): mask contradicts --turns everything: "
            "leave one out"
        )
    if settings.roles != ("assistant",):
        raise UsageError("--roles (sft.roles): --turns everything trains all roles: leave one out")
    if settings.samples == "turn":
        raise UsageError(
            "--samples (sft.samples): turn trains one turn of each sample, which contradicts "
            "--turns everything: leave one out"
        )


def segment_weights(
    table: SegmentTable, rule: MaskRule
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """Give the weight of each segment in the loss, and whether a trained turn ends behind it.

    Returns:
        weights (n_segments,) float32 and turn_ends (n_segments,) bool.
    """
    turns = table.turns
    weight_of_turn = turn_weights(table, rule)
    weights = np.where(rule.trained[table.kinds], weight_of_turn[turns], 0).astype(np.float32)
    is_last = np.ones(len(turns), bool)
    is_last[:-1] = turns[1:] != turns[:-1]
    return weights, is_last & (weight_of_turn[turns] > 0)


def turn_weights(table: SegmentTable, rule: MaskRule) -> npt.NDArray[np.float32]:
    """Give the weight of every turn: (n_turns,) float32. What the record says wins."""
    chosen = rule.roles[table.roles]
    if rule.turns not in ("all", EVERYTHING):
        chosen &= _late_turns(table.samples, table.roles, chosen, rule.turns)
    by_rule = chosen.astype(np.float32)
    return np.where(np.isnan(table.said), by_rule, table.said)


def _late_turns(
    samples: npt.NDArray[np.int64],
    roles: npt.NDArray[np.int64],
    chosen: npt.NDArray[np.bool_],
    turns: str,
) -> npt.NDArray[np.bool_]:
    """Say which turns stand late enough in their sample: behind the last user, or last chosen."""
    marks = chosen if turns == "last" else roles == ROLES.index("user")
    last = np.full(int(samples.max(initial=-1)) + 1, -1, np.int64)
    np.maximum.at(last, samples[marks], np.flatnonzero(marks))
    number = np.arange(len(samples))
    late: npt.NDArray[np.bool_] = number >= last[samples]
    return late


_BOOLEANS = ("train", "training")
_NUMBERS = ("weight", "loss_weight", "loss_mask")
_SWITCHES = frozenset(SWITCH_KEYS)
_OF_SAMPLE = frozenset(WEIGHT_KEYS)
_LARGEST = 3.4028234663852886e38  # of float32: in .weight files


def message_weight(item: Mapping[str, Any], settings: SftSettings, where: str) -> float | None:
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


def times_record_weight(
    record: Mapping[str, Any],
    messages: Sequence[Message],
    weights: list[float | None],
    settings: SftSettings,
) -> list[float | None]:
    """Give the weights of the messages times the record's own `weight` or `loss_weight`.

    A turn that says nothing stays with the mask rule at 1, is 0 at 0, and at another weight has
    that one if its role is trained.

    Raises:
        ChatError: as `message_weight`; and for a fractional weight when not all turns are trained.
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


def whole_text_weight(conversation: Conversation) -> float | None:
    """Return the one weight that all messages have, when all tokens are trained.

    Raises:
        ChatError: they differ, and the template does not show which text is whose.
    """
    weights = set(conversation.weights)
    if len(weights) == 1:
        return weights.pop()
    raise ChatError(
        "weight of another role",
        "messages have weights of their own, and a Jinja template does not show what all roles "
        "say: use a built-in --template, or train the replies alone",
    )


def span_weights(
    conversation: Conversation, replies: Sequence[int], n_spans: int
) -> list[float | None]:
    """Return the weight of each span.

    Raises:
        ChatError: another message than a reply is to be trained, or replies have weights of their
            own and the template marks more or fewer spans.
    """
    if any(conversation.weights):
        _check_weights(conversation)
    weights = [conversation.weights[i] for i in replies]
    if n_spans == len(replies):
        return weights
    if any(weight is not None for weight in weights):
        raise count_differs(len(replies), n_spans)
    return [None] * n_spans


def _check_weights(conversation: Conversation) -> None:
    for i, weight in enumerate(conversation.weights):
        role = conversation.messages[i]["role"]
        if weight and role != "assistant":
            raise ChatError(
                "weight of another role",
                f"message {i + 1} ({role}) has weight {weight}, and a Jinja template shows what "
                "the assistant says alone: use a built-in --template",
            )


def count_differs(n_replies: int, n_spans: int) -> ChatError:
    """Give the error of a template that does not mark one span for each reply."""
    return ChatError(
        "turns and spans differ",
        f"{n_spans} generation blocks for {n_replies} assistant messages: cannot match them",
    )
