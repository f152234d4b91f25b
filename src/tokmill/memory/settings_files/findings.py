"""The contents of a settings file, as settings of tokmill."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from tokmill.errors import UsageError
from tokmill.settings.bill import TrainingSettings

_FIELDS = {f.name: f for f in dataclasses.fields(TrainingSettings)}


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The contents of a settings file.

    `training` and `model` hold values for fields of `TrainingSettings` and `ModelSettings`, only
    those that the file says. `notes` are assumptions. `not_read` are paths of keys that the
    bill does not use; with the value where the key is used and this value has no formula.
    """

    training: dict[str, Any]
    model: dict[str, Any]
    notes: tuple[str, ...] = ()
    not_read: tuple[str, ...] = ()


@dataclass(slots=True)
class Findings:
    """`ReadSettings` while a file is being read."""

    training: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    not_read: list[str] = field(default_factory=list)

    def set(self, name: str, value: Any, where: str) -> None:
        """Keep a value of a training setting, unless it is None; `where` is for the message.

        Raises:
            UsageError: the value is outside the setting's range.
        """
        if value is None:
            return
        low, high = (_FIELDS[name].metadata.get(key) for key in ("minimum", "maximum"))
        if (low is not None and value < low) or (high is not None and value > high):
            raise UsageError(f"{where}: expected between {low} and {high}, found {value}")
        self.training[name] = value

    def settled(self) -> ReadSettings:
        """Return what was found; each note and each key once."""
        return ReadSettings(
            self.training,
            self.model,
            tuple(dict.fromkeys(self.notes)),
            tuple(dict.fromkeys(self.not_read)),
        )
