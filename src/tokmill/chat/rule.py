"""The mask rule: which segments of a sample are trained, by kind, turn and role.

Frameworks disagree on the tokens around a turn; a preset is the rule of one of them. The table
follows what each framework's code does with a conversation; README.md names the differences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokmill.chat.segments import ROLES, Kind
from tokmill.errors import UsageError
from tokmill.settings.names import flag

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.chat.segments import SegmentTable
    from tokmill.settings.schema import SftSettings

EVERYTHING = "everything"
"""The setting of turns that trains every token, as language modelling does."""

_SWITCHES = {
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
    for name, kinds in _SWITCHES.items():
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
    masked = [name for name in _SWITCHES if getattr(settings, name) == "mask"]
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
