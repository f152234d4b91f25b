"""A settings file of another program: its typed values, the settings they give, the unread keys.

A key is a path with dots, such as `zero_optimization.stage`. A value is None where the file gives
none: null, an empty string and "auto". Numbers may be strings ("8", and 1e6, which PyYAML leaves a
string), and flags may be words.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokmill.bill.settings_files.parse import check_keys, shown_value
from tokmill.errors import UsageError
from tokmill.settings.training import TrainingSettings

_FIELDS = {f.name: f for f in dataclasses.fields(TrainingSettings)}
_FLAGS = {
    "true": True, "yes": True, "on": True, "1": True,
    "false": False, "no": False, "off": False, "0": False,
}  # fmt: skip
_OFF: tuple[object, ...] = (None, False, 0, -1, "", "no", "none", "auto", "off", [])
"""Values of a key that changes nothing; such a key is not listed as unread."""


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The settings that a file gives.

    Attributes:
        training: values for fields of `TrainingSettings`.
        model: values for fields of `ModelSettings`.
        notes: assumptions that were made.
        not_read: keys that the bill does not use; with the value where only this value is unknown.
    """

    training: dict[str, Any]
    model: dict[str, Any]
    notes: tuple[str, ...] = ()
    not_read: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """A key, the method that reads its value, and the settings that the value gives.

    `values` translates the value: to a tuple where `settings` is a tuple. A value that it lacks is
    listed as not read, or is an error if `refuse`.
    """

    key: str
    read: Callable[[SettingsFile, str], Any]
    settings: str | tuple[str, ...]
    values: Mapping[Any, Any] | None = None
    refuse: bool = False


def when(key: str, setting: str, value: Any) -> Row:
    """Return the row of a flag that gives `setting` a value where the flag is true."""
    return Row(key, SettingsFile.flag, setting, {True: value, False: None})


@dataclass(slots=True)
class SettingsFile:
    """A file, or a table inside it at `place`, and what has been read so far."""

    path: Path
    values: Mapping[str, Any]
    place: str = ""
    training: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    not_read: list[str] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)

    def where(self, key: str) -> str:
        """Return file and key, for messages."""
        return f"{self.path}: {self.place}{key}"

    def shown(self, key: str) -> str:
        """Return a key with its value, for notes."""
        value = self._raw(key)
        return f"{self.place}{key}: {value if isinstance(value, str) else shown_value(value)}"

    def has(self, key: str) -> bool:
        """Return whether a key of the first level is in the file, with any value."""
        self.asked.add(key)
        return key in self.values

    def is_auto(self, key: str) -> bool:
        """Return whether the file leaves the value to the program."""
        return bool(self._raw(key) == "auto")

    def get(self, key: str) -> Any:
        """Return a value as the file has it."""
        value = self._raw(key)
        return None if value in ("", "auto") else value

    def table(self, key: str) -> Mapping[str, Any] | None:
        """Return a table."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self._wrong(key, "an object")
        return check_keys(value, self.where(key))

    def number(self, key: str) -> float | None:
        """Return a number."""
        value = self.get(key)
        number = None if value is None else _number(value)
        if value is not None and number is None:
            raise self._wrong(key, "a number")
        return number

    def integer(self, key: str) -> int | None:
        """Return a whole number."""
        number = self.number(key)
        if number is not None and not number.is_integer():
            raise self._wrong(key, "a whole number")
        return None if number is None else int(number)

    def count(self, key: str) -> int | None:
        """Return a whole number; None for 0 and less, which mean that no value is given."""
        integer = self.integer(key)
        return None if integer is None or integer <= 0 else integer

    def flag(self, key: str) -> bool | None:
        """Return true or false."""
        value = self.get(key)
        if value is None or isinstance(value, bool):
            return value
        flag = _FLAGS.get(str(value).strip().lower())
        if flag is None:
            raise self._wrong(key, "true or false")
        return flag

    def choice(self, key: str) -> str | None:
        """Return a word in lower case; a flag is "yes" or "no": YAML reads a bare no as a flag."""
        value = self.get(key)
        if isinstance(value, bool):
            return "yes" if value else "no"
        word = self.word(key)
        return None if word is None else word.lower()

    def word(self, key: str) -> str | None:
        """Return a text."""
        value = self.get(key)
        if value is not None and not isinstance(value, str):
            raise self._wrong(key, "text")
        return None if value is None else str(value).strip()

    def words(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, which may also be one text with commas or spaces."""
        value = self.get(key)
        if isinstance(value, str):
            return tuple(value.replace(",", " ").split())
        if value is None:
            return ()
        if not isinstance(value, list) or any(not isinstance(item, str) for item in value):
            raise self._wrong(key, "a list of texts")
        return tuple(value)

    def one_half(self, on: list[str]) -> str:
        """Return the key of the 16-bit type that is on, "" for none.

        Raises:
            UsageError: both are on.
        """
        if len(on) > 1:
            raise UsageError(
                f"{self.path}: expected one 16-bit type, found both {on[0]} and {on[1]}; "
                "switch one off"
            )
        return on[0] if on else ""

    def read(self, rows: Iterable[Row]) -> None:
        """Read the keys of `rows`; of two rows for one setting the later wins."""
        for row in rows:
            value = row.read(self, row.key)
            if value is None:
                continue
            if row.values is not None and value not in row.values:
                if row.refuse:
                    *first, last = map(str, row.values)
                    raise self._wrong(row.key, f"{', '.join(first)} or {last}")
                self.not_read.append(self.shown(row.key))
                continue
            given = value if row.values is None else row.values[value]
            if isinstance(row.settings, str):
                self.set(row.settings, given, row.key)
            else:
                for name, one in zip(row.settings, given, strict=True):
                    self.set(name, one, row.key)

    def set(self, name: str, value: Any, key: str) -> None:
        """Set a training setting from `key`, unless the value is None.

        Raises:
            UsageError: the value is outside the setting's range.
        """
        if value is None:
            return
        low, high = (_FIELDS[name].metadata.get(limit) for limit in ("minimum", "maximum"))
        if (low is not None and value < low) or (high is not None and value > high):
            raise UsageError(f"{self.where(key)}: expected between {low} and {high}, found {value}")
        self.training[name] = value

    def ignore(self, table: str) -> None:
        """Take all keys of a table as read, because the table is switched off."""
        self.asked |= {f"{table}.{key}" for key in self.table(table) or ()}

    def left(self) -> list[str]:
        """Return the keys that were not read and change something.

        Without their values: one of them may be a password.
        """
        return [f"{self.place}{key}" for key in self._left(self.values, "")]

    def result(self) -> ReadSettings:
        """Return what was read, each note and each unread key once."""
        not_read = dict.fromkeys((*self.not_read, *self.left()))
        notes = tuple(dict.fromkeys(self.notes))
        return ReadSettings(self.training, self.model, notes, tuple(not_read))

    def _left(self, values: Mapping[str, Any], place: str) -> Iterator[str]:
        for name, value in values.items():
            key = f"{place}{name}"
            if isinstance(value, Mapping) and any(a.startswith(f"{key}.") for a in self.asked):
                yield from self._left(value, f"{key}.")
            elif key not in self.asked and _changes(value):
                yield key

    def _raw(self, key: str) -> Any:
        self.asked.add(key)
        parent, _, name = key.rpartition(".")
        table = self.table(parent) if parent else self.values
        return None if table is None else table.get(name)

    def _wrong(self, key: str, expected: str) -> UsageError:
        found = shown_value(self._raw(key))
        return UsageError(f"{self.where(key)}: expected {expected}, found {found}")


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _changes(value: Any) -> bool:
    """Return whether a value, or one inside it, is not off; aliases of YAML may form a circle."""
    waiting, seen = [value], set[int]()
    while waiting:
        value = waiting.pop()
        if not isinstance(value, Mapping):
            if value not in _OFF:
                return True
        elif id(value) not in seen:
            seen.add(id(value))
            waiting += value.values()
    return False
