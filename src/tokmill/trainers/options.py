"""The options of an export; each trainer names those that it uses."""

from __future__ import annotations

from dataclasses import Field, dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from tokmill.errors import UsageError
from tokmill.settings.declare import runtime_setting
from tokmill.settings.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping


_MOST_INT32 = (1 << 31) - 1
"""Trainers count the tokens of a row in int32."""


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options of an export; `copy` is for every trainer, the others for those that name them."""

    copy: bool = runtime_setting(
        False, "Copy files of the dataset, in place of hard links to them."
    )
    merge: bool = runtime_setting(
        False, "megatron, torchtitan: write one file for each split, not one for each shard."
    )
    tokens: tuple[str, ...] = runtime_setting(
        (),
        "megatron: blend; train on so many tokens of SOURCE, the directory of a dataset or a "
        "pattern of input files. Once for each SOURCE, such as wiki=60B.",
        metavar="SOURCE=TOKENS",
    )
    packing: int = runtime_setting(
        0,
        "trl, megatron-bridge: pack chats into rows of this many tokens; 0: the dataset's own "
        "packs, if it has any.",
        unit="context",
        minimum=0,
        maximum=_MOST_INT32,
    )
    unpacked: bool = runtime_setting(
        False, "trl: write a row for each chat, even if the dataset is packed."
    )
    pad_samples_to: int = runtime_setting(
        1,
        "megatron-bridge: pad each chat of a pack to a multiple of this many tokens, as context "
        "parallelism needs (2 x its GPUs).",
        unit="count",
        minimum=1,
        maximum=_MOST_INT32,
    )
    eos: str = runtime_setting(
        "first",
        "llm.c, modded-nanogpt: place of eos; first: before every document; last: after it.",
        choices=("first", "last"),
    )
    file_tokens: int = runtime_setting(
        100_000_000,
        "llm.c, modded-nanogpt, litdata, litgpt: maximum number of tokens in a file.",
        unit="count",
        minimum=1,
    )
    block_tokens: int = runtime_setting(
        2049,
        "litdata, litgpt: tokens that the reader returns at once (block_size; in litgpt "
        "max_seq_length + 1). Chunks end at a multiple, so that only the last block of a split "
        "can be incomplete.",
        unit="count",
        minimum=1,
    )

    def check_used(self, used: frozenset[str], trainer: str) -> None:
        """Check that every option that is set has an effect for a trainer, within its limits.

        Raises:
            UsageError: one has none, or is below its minimum or above its maximum.
        """
        for field in fields(self):
            value, name = getattr(self, field.name), field.name.replace("_", "-")
            if value == field.default:
                continue
            if field.name != "copy" and field.name not in used:
                raise UsageError(f"--{name} has no effect on an export to {trainer}: leave it out")
            least = field.metadata.get("minimum")
            if least is not None and value < least:
                raise UsageError(f"--{name}: expected at least {least}, found {value}")
            most = field.metadata.get("maximum")
            if most is not None and value > most:
                raise UsageError(f"--{name}: expected at most {most:,}, found {value:,}")


def export_options(given: Mapping[str, Any]) -> ExportOptions:
    """Return options from keyword arguments.

    Raises:
        UsageError: there is no such option, or its value has another type.
    """
    known = {field.name: field for field in fields(ExportOptions)}
    for name in given:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            meant = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
            raise UsageError(f"{name}: no option of an export: {meant}")
    return ExportOptions(**{name: _value(known[name], given[name]) for name in given})


def _value(field: Field[Any], value: Any) -> Any:
    unit, expected = field.metadata.get("unit"), type(field.default)
    key = f"export.{field.name}"
    if unit and isinstance(value, str):
        try:
            return parse_quantity(value, unit)
        except UsageError as error:
            raise UsageError(error.args[0], key) from None
    if expected is tuple:
        is_list = isinstance(value, list | tuple)
        if not is_list or not all(isinstance(one, str) for one in value):
            raise UsageError(f"expected a list of strings, found {value!r}", key)
        return tuple(value)
    if type(value) is not expected:
        raise UsageError(f"expected {expected.__name__}, found {value!r}", key)
    choices = field.metadata.get("choices", (value,))
    if value not in choices:
        raise UsageError(f"expected {' or '.join(choices)}, found {value!r}", key)
    return value
