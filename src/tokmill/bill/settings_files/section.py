"""A table of a settings file, with typed values and the keys that were read; and what was found.

Files are JSON or YAML. Numbers may be strings ("8", and YAML's 1e6, which PyYAML leaves a string),
flags may be words; null, an empty string and "auto" say nothing.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokmill.errors import UsageError
from tokmill.settings.training import TrainingSettings

_FLAGS = {
    "true": True, "yes": True, "on": True, "1": True,
    "false": False, "no": False, "off": False, "0": False,
}  # fmt: skip
_INERT: tuple[object, ...] = (None, False, 0, -1, "", "no", "none", "auto", "off", [], {})
"""A key with one of these values asks for nothing."""


class Section:
    """A table, its file and its place there. `get` and its typed kin give None for "not said"."""

    def __init__(
        self, file: Path, values: Mapping[str, Any], place: str = "", prefix: str = ""
    ) -> None:
        """Take the table at `place`; keys are asked for without `prefix`, which they may have."""
        self.file = file
        self._names = {key.removeprefix(prefix): key for key in values}
        self._values = {key.removeprefix(prefix): value for key, value in values.items()}
        self._place = place
        self._asked: set[str] = set()

    def place(self, key: str) -> str:
        """Return the path of a key in the file, such as zero_optimization.stage."""
        return f"{self._place}{self._names.get(key, key)}"

    def where(self, key: str) -> str:
        """Return file and path of a key, for messages."""
        return f"{self.file}: {self.place(key)}"

    def said(self, key: str) -> str:
        """Return a key's path with its value, if that is plain."""
        value = self._values.get(key)
        if not _is_plain(value):
            return self.place(key)
        shown = value if isinstance(value, str) else json.dumps(value)
        return f"{self.place(key)}: {shown}"

    def has(self, key: str) -> bool:
        """Return whether the key stands in the file, whatever it says."""
        self._asked.add(key)
        return key in self._values

    def is_auto(self, key: str) -> bool:
        """Return whether the file leaves the value to the program."""
        self._asked.add(key)
        return bool(self._values.get(key) == "auto")

    def get(self, key: str) -> Any:
        """Return a value as it stands."""
        self._asked.add(key)
        value = self._values.get(key)
        return None if value in ("", "auto") else value

    def number(self, key: str) -> float | None:
        """Return a number."""
        value = self.get(key)
        if value is None:
            return None
        number = _number(value)
        if number is None:
            raise self._wrong(key, "a number", value)
        return number

    def whole(self, key: str) -> int | None:
        """Return a whole number."""
        number = self.number(key)
        if number is not None and not number.is_integer():
            raise self._wrong(key, "a whole number", self.get(key))
        return None if number is None else int(number)

    def count(self, key: str) -> int | None:
        """Return a whole number where 0 and less mean "not said"."""
        whole = self.whole(key)
        return None if whole is None or whole <= 0 else whole

    def flag(self, key: str) -> bool | None:
        """Return true or false."""
        value = self.get(key)
        if value is None or isinstance(value, bool):
            return value
        flag = _FLAGS.get(str(value).strip().lower())
        if flag is None:
            raise self._wrong(key, "true or false", value)
        return flag

    def word(self, key: str) -> str | None:
        """Return a text."""
        value = self.get(key)
        if value is not None and not isinstance(value, str):
            raise self._wrong(key, "text", value)
        return None if value is None else str(value).strip()

    def choice(self, key: str) -> str | None:
        """Return a word in lower case, for a flag "yes" or "no": YAML reads a bare no as a flag."""
        value = self.get(key)
        if isinstance(value, bool):
            return "yes" if value else "no"
        word = self.word(key)
        return None if word is None else word.lower()

    def words(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, which may also be one text with commas or spaces."""
        value = self.get(key)
        if isinstance(value, str):
            return tuple(value.replace(",", " ").split())
        if value is None:
            return ()
        if not isinstance(value, list) or any(not isinstance(item, str) for item in value):
            raise self._wrong(key, "a list of texts", value)
        return tuple(value)

    def section(self, key: str, prefix: str = "") -> Section | None:
        """Return a table inside this one; its keys may have `prefix`."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self._wrong(key, "an object", value)
        values = text_keys(value, self.where(key))
        return Section(self.file, values, f"{self.place(key)}.", prefix)

    def left(self) -> list[str]:
        """Return the paths of the keys that were not read and whose value asks for something.

        Without their values: one of them may be a password.
        """
        return [
            self.place(key)
            for key, value in self._values.items()
            if key not in self._asked and value not in _INERT
        ]

    def _wrong(self, key: str, expected: str, value: Any) -> UsageError:
        shown = json.dumps(value) if _is_plain(value) else f"a {_kind(value)}"
        return UsageError(f"{self.where(key)}: expected {expected}, found {shown}")


def read_section(path: Path | str) -> Section:
    """Read a JSON file (by its ending), or else a YAML file, that holds an object.

    Raises:
        UsageError: the file is missing, unreadable, neither, no object, or names a key twice.
    """
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such settings file") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: expected JSON or YAML in UTF-8, found other bytes") from None
    try:
        value = _from_json(text) if path.suffix == ".json" else _from_yaml(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(value, Mapping):
        raise UsageError(f"{path}: expected an object with keys, found a {_kind(value)}")
    return Section(path, text_keys(value, str(path)))


def text_keys(values: Mapping[Any, Any], where: str) -> Mapping[str, Any]:
    """Return the table itself.

    Raises:
        UsageError: a key is no text, as YAML's `on:` and `1:`.
    """
    for key in values:
        if not isinstance(key, str):
            raise UsageError(f"{where}: expected keys that are text, found {key!r}; quote it")
    return values


def _from_json(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f"key {twice!r} occurs twice")
        return table

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error}") from None


def _from_yaml(text: str) -> Any:
    import yaml

    class Unique(yaml.SafeLoader):
        """PyYAML lets the last of two equal keys win; here they are an error."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
            for key in keys:
                if keys.count(key) > 1:
                    raise ValueError(f"key {key!r} occurs twice")
            found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
            return found

    try:
        return yaml.load(text, Loader=Unique)  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise ValueError(f"not valid YAML: {error}") from None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):
        return "table"
    return "list" if isinstance(value, list) else f"value of type {type(value).__name__}"


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
