"""The options of an export; each trainer names those that it uses."""

from __future__ import annotations

from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from tokmill.errors import UsageError
from tokmill.settings.declare import runtime_setting

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options of an export; `copy` is for every trainer, the others for those that name them."""

    copy: bool = runtime_setting(
        False, "Copy files that could be hard links to files of the dataset."
    )
    merge: bool = runtime_setting(False, "One file for each split, in place of one a shard.")
    tokens: tuple[str, ...] = runtime_setting(
        (),
        "Blend: train on so many tokens of SOURCE, a dataset's directory or a pattern of input "
        "files, such as wiki=60B; again for each SOURCE.",
    )

    def check_used(self, used: frozenset[str], trainer: str) -> None:
        """Check that every option that is set has an effect for a trainer.

        Raises:
            UsageError: one has none.
        """
        for field in fields(self):
            is_set = getattr(self, field.name) != field.default
            if is_set and field.name != "copy" and field.name not in used:
                name = field.name.replace("_", "-")
                raise UsageError(f"--{name} has no effect on an export to {trainer}: leave it out")


def export_options(given: Mapping[str, Any]) -> ExportOptions:
    """Return options from keyword arguments.

    Raises:
        UsageError: there is no such option, or its value has another type.
    """
    known = {field.name: field for field in fields(ExportOptions)}
    for name, value in given.items():
        if name not in known:
            close = get_close_matches(name, known, n=1)
            meant = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
            raise UsageError(f"{name}: no option of an export: {meant}")
        expected = type(known[name].default)
        if expected is tuple:
            if isinstance(value, str) or not all(isinstance(one, str) for one in value):
                raise UsageError(f"{name}: expected a list of strings, found {value!r}")
        elif type(value) is not expected:
            raise UsageError(f"{name}: expected {expected.__name__}, found {value!r}")
    lists = {name: tuple(given[name]) for name in given if type(known[name].default) is tuple}
    return ExportOptions(**{**given, **lists})
