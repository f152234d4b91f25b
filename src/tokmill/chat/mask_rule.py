"""The mask rule: which kinds of segments are trained in which turns.

A preset is the rule of one framework: they disagree on the tokens around a turn. The table follows
what their code does with a conversation. `--train` names other kinds, or changes the preset.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokmill.chat.control_strings import REASONING_TAGS
from tokmill.chat.segments import ROLES, Kind
from tokmill.errors import UsageError
from tokmill.extensions import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from tokmill.settings.sft import SftSettings


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

EVERYTHING, NEXT_ROLE, EMPTY_REASONING = "everything", "next-role", "empty-reasoning"
EOS, UNTRAINED_EOS = "eos", "untrained-eos"
_KINDS = {
    "content": (Kind.CONTENT,),
    "reasoning": (Kind.REASONING,),
    "tool-calls": (Kind.TOOL_CALL,),
    "eot": (Kind.EOT, Kind.EOT_OUTSIDE),
    "suffix": (Kind.SUFFIX, Kind.SUFFIX_OUTSIDE),
    "header": (Kind.HEADER,),
    "prompt": (Kind.HEADER_INSIDE,),
    EOS: (Kind.END,),
}
"""The kinds that a name of --train stands for."""
NAMES = (*_KINDS, EMPTY_REASONING, NEXT_ROLE, UNTRAINED_EOS, EVERYTHING)

LARGEST_WEIGHT = 3.4028234663852886e38
"""Of float32, as .weight files have it."""

_EMPTY = "|".join(
    rf"(?:{re.escape(opens)})?\s*+{re.escape(closes)}"
    for opens, closes in (*REASONING_TAGS, ("<|channel>thought", "<channel|>"))
)
EMPTY_BLOCK = re.compile(rf"\A\s*+(?:{_EMPTY})\s*")
"""An empty block that begins a reply; its opening tag may stand in the prompt."""


@dataclass(frozen=True, slots=True)
class MaskRule:
    """A preset with the settings applied.

    `trained`: (n_kinds,) bool. `roles`: (n_roles,) bool. `boundary`: `split` or `joint`.
    `straddling`: `train`, `mask` or `reject`. `turns`: as the setting. `appends_eos`: whether
    samples and replies without an end get eos. `next_role_ends`: whether the token of the next role
    ends a reply. `trains_all`: whether all tokens are trained. `weighed`: patterns of text in
    replies, and the factors of their weights. `template`: see `Preset`.
    """

    trained: npt.NDArray[np.bool_]
    roles: npt.NDArray[np.bool_]
    boundary: str
    straddling: str
    turns: str
    appends_eos: bool
    next_role_ends: bool
    trains_all: bool
    weighed: tuple[tuple[re.Pattern[str], float], ...]
    template: str


def mask_rule(settings: SftSettings) -> MaskRule:
    """Return the rule that the settings describe.

    Raises:
        UsageError: the settings contradict each other, or have an unknown name.
    """
    preset = _PRESETS[settings.preset]
    names, trained = _chosen(settings.train, preset.trained)
    trains_all = EVERYTHING in names
    if trains_all:
        _check_everything(settings, names)
        trained[:] = True
        trained[Kind.END] = UNTRAINED_EOS not in names
    unknown = [role for role in settings.roles if role not in ROLES]
    if unknown:
        known = ", ".join(ROLES)
        raise UsageError(f"unknown role {unknown[0]!r}; known: {known}", "sft.roles")
    weighed = [weighing(text) for text in settings.weigh]
    if not (trains_all or EMPTY_REASONING in names):
        weighed.append((EMPTY_BLOCK, 0.0))
    boundary = preset.boundary if settings.boundary == "preset" else settings.boundary
    boundary, _, straddling = boundary.partition("-")
    return MaskRule(
        trained,
        np.isin(ROLES, settings.roles) | trains_all,
        boundary,
        straddling or "train",
        settings.turns,
        appends_eos=not names.isdisjoint((EOS, UNTRAINED_EOS)),
        next_role_ends=NEXT_ROLE in names,
        trains_all=trains_all,
        weighed=tuple(weighed),
        template=preset.template,
    )


def is_everything(names: Iterable[str]) -> bool:
    """Return whether a `--train` trains all tokens, those of a prompt beside a completion too."""
    return not {EVERYTHING, f"+{EVERYTHING}"}.isdisjoint(names)


def _chosen(
    given: Iterable[str], preset: frozenset[Kind]
) -> tuple[set[str], npt.NDArray[np.bool_]]:
    """Return the names of a `--train` in force, and the kinds that it trains: (n_kinds,)."""
    items = [item for item in given if item]
    signs = {item[0] if item[0] in "+-" else "" for item in items}
    if "" in signs and len(signs) > 1:
        raise UsageError(
            "expected names, which replace those of the preset, or +NAME and -NAME, which change "
            f"it; found both: {','.join(items)}",
            "sft.train",
        )
    changes = signs != {""}  # and if there is no name at all
    names = {EMPTY_REASONING} if changes else set()
    trained = np.zeros(len(Kind), bool)
    if changes:
        trained[list(preset)] = True
    for item in items:
        name = item[1:] if item[0] in "+-" else item
        if name not in NAMES:
            known = ", ".join(NAMES)
            raise UsageError(
                f"expected one of {known}; found {name!r}{nearest(name, NAMES)}", "sft.train"
            )
        adds = not item.startswith("-")
        (names.add if adds else names.discard)(name)
        trained[list(_KINDS.get(name, ()))] = adds
    if names.issuperset((EOS, UNTRAINED_EOS)):
        raise UsageError("eos and untrained-eos contradict each other: leave one out", "sft.train")
    if NEXT_ROLE in names:
        trained[Kind.EOT_OUTSIDE] = True
    return names, trained


def _check_everything(settings: SftSettings, names: set[str]) -> None:
    """Check that no other setting trains a part of "everything"."""
    with_it = {EVERYTHING, EMPTY_REASONING, EOS, UNTRAINED_EOS}
    others = [item for item in settings.train if item.lstrip("+") not in with_it]
    if others:
        raise UsageError(
            f"everything contains all but eos: leave {', '.join(others)} out", "sft.train"
        )
    for name, value, default in (
        ("roles", settings.roles, ("assistant",)),
        ("turns", settings.turns, "all"),
        ("samples", settings.samples, "conversation"),
        ("history_reasoning", settings.history_reasoning, "keep"),
        ("weigh", settings.weigh, ()),
    ):
        if value != default:
            raise UsageError("contradicts --train=everything: leave one out", f"sft.{name}")


WEIGHED = "sft.weigh="
"""Prefix of the counts of replies in which a pattern matches; a label of `recipes.named`."""


def weighing(text: str) -> tuple[re.Pattern[str], float]:
    """Return the pattern and the factor of `REGEX=FACTOR`; "." matches newlines too.

    Raises:
        UsageError: it has no factor, or no valid regular expression.
    """
    pattern, _, number = text.rpartition("=")
    try:
        factor = float(number)
        if not pattern or not 0 <= factor <= LARGEST_WEIGHT:
            raise ValueError
        compiled = re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise UsageError(f"{pattern!r} is no regular expression: {error}", "sft.weigh") from None
    except ValueError:
        raise UsageError(
            f"expected REGEX=FACTOR with a factor of 0 or more, such as '<tool_call>.+?"
            f"</tool_call>=2.0', found {text!r}",
            "sft.weigh",
        ) from None
    return compiled, factor
