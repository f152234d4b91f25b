"""How a field of a settings dataclass is declared: its default, help, limits and unit.

Amounts are written as people write them: 8MiB, a context of 32k, 300B tokens, 900GB/s.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, NamedTuple

from tokmill.errors import UsageError

PATH, NAME_OR_PATH = "path", "name or path"


class Unit(NamedTuple):
    """A unit: what may follow a number, in lower case, and texts for messages and help."""

    factors: Mapping[str, int]
    expected: str
    metavar: str
    help: str = ""


_BYTES = {
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)},
}
UNITS = {
    "bytes": Unit(_BYTES, "a size such as 8MiB or 1GB", "size"),
    "bytes/s": Unit(
        {**_BYTES, **{f"{name}/s": factor for name, factor in _BYTES.items()}},
        "bytes per second such as 900GB/s",
        "speed",
    ),
    "context": Unit(
        {"k": 1 << 10, "m": 1 << 20},
        "a number of tokens such as 4096 or 32k (32,768)",
        "tokens",
        " 32k is 32,768.",
    ),
    "count": Unit(
        {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12},
        "a number such as 7.5B or 300M",
        "number",
        " K, M, B, T: 10^3, 10^6, 10^9, 10^12.",
    ),
}
"""Units by the value of `unit` in a declaration."""
_AMOUNT = re.compile(r"(\d{1,30})(?:\.(\d{1,30}))?\s*([A-Za-z/]*)")


def dataset_setting(default: Any, text: str, **metadata: Any) -> Any:
    """Declare a setting that changes the bytes of the dataset; `text` is its help.

    Metadata: `choices`, all values that the setting may have. `table`, a table of names to which
    other packages may add. `unit`, a key of `UNITS`: text such as "8MiB" is accepted for
    the number. `of_source`: a source may have a value of its own. `is_hidden`: there is no option.
    `keeps_commas`: each option holds one item of a list.
    `is_path`: `PATH` or `NAME_OR_PATH`, which in a TOML file is relative to its folder.
    `in_plan_if_set`: plan and manifest name it only if it is not the default. `zero_is_value`: its
    default 0 is a number as others; else a default of 0, -1 or '' is None in Python.
    """
    return _setting(default, text, affects_output=True, **metadata)


def runtime_setting(default: Any, text: str, **metadata: Any) -> Any:
    """Declare a setting that changes speed, memory, messages or the bill, but no byte of output."""
    return _setting(default, text, affects_output=False, **metadata)


def shard_tokens_setting() -> Any:
    """Declare the limit of a shard: one setting of runs and of mixes."""
    return dataset_setting(
        0, "Maximum number of tokens in a shard; 0: 1 GiB of tokens.", minimum=0, unit="count"
    )


def max_samples_setting() -> Any:
    """Declare the limit of a packed row: one setting of text and of chats."""
    return dataset_setting(
        0,
        "With packing: samples in a row, at most, so that cu_seqlens can have a fixed length; 0: "
        "any number.",
        minimum=0,
        maximum=1 << 28,
        in_plan_if_set=True,
    )


def _setting(default: Any, text: str, **metadata: Any) -> Any:
    text += UNITS[metadata["unit"]].help if "unit" in metadata else ""
    return field(default=default, metadata={"help": text, **metadata})


def parse_quantity(text: str, unit: str, where: str = "") -> int:
    """Return a whole number from text such as `8 MiB`, `32k` or `4096`; computed without rounding.

    A part of a byte or token that is left over is dropped: 1.5 B is 1. A number without a unit must
    be whole: 1.5 alone has probably lost its unit.

    Args:
        text: a number and what follows it, in any case.
        unit: a key of `UNITS`.
        where: what the message begins with; '' for nothing.

    Raises:
        UsageError: it is not a number, or has another unit.
    """
    known = UNITS[unit]
    match = _AMOUNT.fullmatch(text.strip())
    factor = None if match is None else {"": 1, **known.factors}.get(match[3].lower())
    decimals = "" if match is None else match[2] or ""
    if match is None or factor is None or (not match[3] and decimals.strip("0")):
        begin = f"{where}: " if where else ""
        raise UsageError(f"{begin}expected {known.expected}, found {text!r}")
    divisor: int = 10 ** len(decimals)
    return int(match[1] + decimals) * factor // divisor
