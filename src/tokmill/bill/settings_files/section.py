"""A table of a settings file: typed values, and the keys that were not read.

Files are JSON or YAML. Numbers may be strings ("8", and YAML's 1e6, which PyYAML leaves a string),
flags may be words; null, an empty string and "auto" give no value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FLAGS = {
    "true": True, "yes": True, "on": True, "1": True,
    "false": False, "no": False, "off": False, "0": False,
}  # fmt: skip
_INERT: tuple[object, ...] = (None, False, 0, -1, "", "no", "none", "auto", "off", [])
"""A key with one of these values asks for nothing."""


class Section:
    """A table, its file and its place there. A typed value is None where the file gives none."""

    def __init__(
        self, file: Path, values: Mapping[str, Any], place: str = "", prefix: str = ""
    ) -> None:
        """Take the table at `place`; keys are asked for without `prefix`, which they may have."""
        self.file = file
        self._names = {key.removeprefix(prefix): key for key in values}
        self._values = {key.removeprefix(prefix): value for key, value in values.items()}
        self._place = place
        self._asked: set[str] = set()
        self._inner: dict[str, Section] = {}

    def place(self, key: str) -> str:
        """Return the path of a key in the file, such as zero_optimization.stage."""
        return f"{self._place}{self._names.get(key, key)}"

    def where(self, key: str) -> str:
        """Return file and path of a key, for messages."""
        return f"{self.file}: {self.place(key)}"

    def shown(self, key: str) -> str:
        """Return a key's path with its value, if that is plain."""
        value = self._values.get(key)
        if not _is_plain(value):
            return self.place(key)
        return f"{self.place(key)}: {value if isinstance(value, str) else json.dumps(value)}"

    def has(self, key: str) -> bool:
        """Return whether the key stands in the file, with any value."""
        self._asked.add(key)
        return key in self._values

    def is_auto(self, key: str) -> bool:
        """Return whether the file leaves the value to the program."""
        return self.has(key) and bool(self._values[key] == "auto")

    def get(self, key: str) -> Any:
        """Return a value as it stands."""
        self._asked.add(key)
        value = self._values.get(key)
        return None if value in ("", "auto") else value

    def number(self, key: str) -> float | None:
        """Return a number."""
        value = self.get(key)
        number = None if value is None else _number(value)
        if value is not None and number is None:
            raise self._wrong(key, "a number")
        return number

    def whole(self, key: str) -> int | None:
        """Return a whole number."""
        number = self.number(key)
        if number is not None and not number.is_integer():
            raise self._wrong(key, "a whole number")
        return None if number is None else int(number)

    def count(self, key: str) -> int | None:
        """Return a whole number where 0 and less mean that no value is given."""
        whole = self.whole(key)
        return None if whole is None or whole <= 0 else whole

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
        """Return a word in lower case; for a flag "yes" or "no": YAML reads a bare no as a flag."""
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

    def section(self, key: str, prefix: str = "") -> Section | None:
        """Return a table inside this one; its keys may have `prefix`."""
        value = self.get(key)
        if key in self._inner or value is None:
            return self._inner.get(key)
        if not isinstance(value, Mapping):
            raise self._wrong(key, "an object")
        values = text_keys(value, self.where(key))
        return self._inner.setdefault(
            key, Section(self.file, values, f"{self.place(key)}.", prefix)
        )

    def at(self, path: str) -> tuple[Section, str]:
        """Return the table and the key at a path with dots; an empty table if there is none."""
        table, *rest = self, *path.split(".")
        for name in rest[:-1]:
            table = table.section(name) or Section(self.file, {})
        return table, rest[-1]

    def ignore(self) -> None:
        """Take all keys as read: the table is switched off."""
        self._asked |= set(self._values)

    def left(self) -> Iterator[str]:
        """Yield the paths of the keys that were not read and whose value asks for something.

        Without their values: one of them may be a password.
        """
        for key, value in self._values.items():
            if key in self._inner:
                yield from self._inner[key].left()
            elif key not in self._asked and _asks(value):
                yield self.place(key)

    def _wrong(self, key: str, expected: str) -> UsageError:
        value = self._values[key]
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


def _check_unique(keys: list[Any]) -> None:
    for key in keys:
        if keys.count(key) > 1:
            raise ValueError(f"key {key!r} occurs twice")


def _from_json(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        _check_unique([key for key, _ in pairs])
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error}") from None


def _from_yaml(text: str) -> Any:
    import yaml

    class Unique(yaml.SafeLoader):
        """PyYAML lets the last of two equal keys win; here they are an error."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            merge = "tag:yaml.org,2002:merge"
            _check_unique([key.value for key, _ in node.value if key.tag != merge])
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


def _asks(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_asks(inner) for inner in value.values())
    return value not in _INERT


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):
        return "table"
    return "list" if isinstance(value, list) else f"value of type {type(value).__name__}"
