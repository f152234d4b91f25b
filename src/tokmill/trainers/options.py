"""The options of an export; each trainer names those that it uses."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from tokmill.errors import UsageError
from tokmill.settings.declare import runtime_setting
from tokmill.settings.load import checked_values
from tokmill.settings.names import settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping


_MOST_INT32 = (1 << 31) - 1
"""Trainers count the tokens of a row in int32."""


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options of an export: two for every trainer, the others for those that name them."""

    copy: bool = runtime_setting(
        False, "Copy files of the dataset, in place of hard links to them."
    )
    drop_weights: bool = runtime_setting(
        False, "Leave weights in the loss out: every trained token counts as 1."
    )
    merge: bool = runtime_setting(
        False,
        "megatron, automodel, torchtitan: write one file for each split, not one for each shard.",
    )
    tokens: tuple[str, ...] = runtime_setting(
        (),
        "megatron, automodel: blend; train on so many tokens of SOURCE, a directory of a dataset. "
        "Once for each SOURCE, such as wiki=60B.",
        metavar="SOURCE=TOKENS",
    )
    packing: int = runtime_setting(
        0,
        "trl, unsloth, llamafactory, ms-swift, megatron-bridge: pack chats into rows of this many "
        "tokens; 0: the dataset's own packs, if it has any.",
        unit="context",
        minimum=0,
        maximum=_MOST_INT32,
    )
    unpacked: bool = runtime_setting(
        False,
        "trl, unsloth, llamafactory, ms-swift, datasets: write a row for each document, even of "
        "a packed dataset.",
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
        """Check that every option that is set has an effect for a trainer.

        Raises:
            UsageError: one has none.
        """
        for field in fields(self):
            is_used = field.name in {"copy", "drop_weights", *used}
            if not is_used and getattr(self, field.name) != field.default:
                name = field.name.replace("_", "-")
                raise UsageError(f"--{name} has no effect on an export to {trainer}: leave it out")


def export_options(given: Mapping[str, Any]) -> ExportOptions:
    """Return options from keyword arguments.

    Raises:
        UsageError: there is no such option, or its value has another type or is out of range.
    """
    return ExportOptions(**checked_values("export", settings_of("export", ExportOptions), given))
