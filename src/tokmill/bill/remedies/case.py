"""A model and its training settings, and changes to both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from tokmill.bill.models.model import Model
from tokmill.settings.training import TrainingSettings

Changes = Mapping[str, Any]
"""Training settings by name; "model" is another model."""


@dataclass(frozen=True, slots=True)
class Case:
    """A model and its training; without a model, only the loading of a dataset is billed."""

    model: Model | None
    training: TrainingSettings

    def having(self, changes: Changes) -> Case:
        """Return the case with these changes."""
        settings = {name: value for name, value in changes.items() if name != "model"}
        return Case(changes.get("model", self.model), replace(self.training, **settings))


def difference(before: Case, after: Case) -> dict[str, Any]:
    """Return the changes that turn one case into another."""
    found = {} if after.model is before.model else {"model": after.model}
    for field in fields(after.training):
        value = getattr(after.training, field.name)
        if value != getattr(before.training, field.name):
            found[field.name] = value
    return found


def options(changes: Changes) -> tuple[str, ...]:
    """Return changes as options of the command line ("--checkpointing full")."""
    found = []
    for name, value in changes.items():
        option = "--" + name.replace("_", "-")
        shown = value.name if name == "model" else value
        if value is False:
            found.append(option.replace("--", "--no-", 1))
        else:
            found.append(option if value is True else f"{option} {shown}")
    return tuple(found)
