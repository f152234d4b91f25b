"""How keys of a settings file become settings of training: rows of a table, and what was found."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokmill.bill.settings_files.section import Section
from tokmill.errors import UsageError
from tokmill.settings.training import TrainingSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


_FIELDS = {f.name: f for f in dataclasses.fields(TrainingSettings)}


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The contents of a settings file.

    `training` and `model` hold values for fields of `TrainingSettings` and `ModelSettings`, only
    those that the file gives. `notes` are assumptions. `not_read` are paths of keys that the
    bill does not use; with the value where the key is used and this value has no formula.
    """

    training: dict[str, Any]
    model: dict[str, Any]
    notes: tuple[str, ...] = ()
    not_read: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """A key (a path with dots), how its value is read, and the settings that it gives.

    `values` translates the value; a value that it lacks is listed as not read. A tuple of settings
    takes a tuple of values.
    """

    key: str
    read: Callable[[Section, str], Any]
    settings: str | tuple[str, ...]
    values: Mapping[Any, Any] | None = None


def when(key: str, setting: str, value: Any) -> Row:
    """Return the row of a flag that gives a setting a value where it is true."""
    return Row(key, Section.flag, setting, {True: value, False: None})


def half_of(section: Section, on: list[str]) -> str:
    """Return the key of the 16-bit type that is on, "" for none.

    Raises:
        UsageError: both are on.
    """
    if len(on) > 1:
        raise UsageError(
            f"{section.file}: expected one 16-bit type, found both {on[0]} and {on[1]}; "
            "switch one off"
        )
    return on[0] if on else ""


@dataclass(slots=True)
class Findings:
    """`ReadSettings` while a file is being read."""

    training: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    not_read: list[str] = field(default_factory=list)

    def read(self, section: Section, rows: Iterable[Row]) -> None:
        """Read the keys of a table; of two rows for one setting the later wins."""
        for row in rows:
            table, key = section.at(row.key)
            value = row.read(table, key)
            if value is None or value == ():
                continue
            if row.values is not None and value not in row.values:
                self.not_read.append(table.shown(key))
                continue
            value = value if row.values is None else row.values[value]
            several = not isinstance(row.settings, str)
            names = row.settings if several else (row.settings,)
            for name, one in zip(names, value if several else (value,), strict=True):
                self.set(str(name), one, table.where(key))

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

    def settled(self, section: Section) -> ReadSettings:
        """Return what was found, with the keys that were not read; each note and key once."""
        return ReadSettings(
            self.training,
            self.model,
            tuple(dict.fromkeys(self.notes)),
            tuple(dict.fromkeys((*self.not_read, *section.left()))),
        )
