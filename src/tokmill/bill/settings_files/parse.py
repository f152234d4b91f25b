"""Parse a settings file: JSON by its ending, else YAML; equal keys are an error."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tokmill.errors import UsageError
from tokmill.settings.load import check_regular

MOST_BYTES = 4 << 20
"""A settings file is some kB; what is larger is another file."""
MOST_SHOWN = 80


def parse_file(path: Path) -> Mapping[str, Any]:
    """Read a JSON or YAML file that holds an object.

    Raises:
        UsageError: the file is missing, unreadable, too large, neither JSON nor YAML, not an
            object, or has a key twice.
    """
    try:
        check_regular(path)
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        text = content.decode("utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such settings file") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: expected JSON or YAML in UTF-8, found other bytes") from None
    except ValueError:  # characters that no path has
        raise UsageError(f"{str(path)!r}: no such settings file") from None
    if len(content) > MOST_BYTES:
        raise UsageError(
            f"{path}: expected a settings file, found more than {MOST_BYTES >> 20} MiB"
        )
    try:
        value = _from_json(text) if path.suffix == ".json" else _from_yaml(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(value, Mapping):
        raise UsageError(f"{path}: expected an object with keys, found {_kind(value)}")
    return check_keys(value, str(path))


def check_keys(table: Mapping[Any, Any], where: str) -> Mapping[str, Any]:
    """Return the table itself.

    Raises:
        UsageError: a key is not text, such as YAML's `on:` and `1:`.
    """
    for key in table:
        if not isinstance(key, str):
            raise UsageError(f"{where}: expected keys that are text, found {key!r}; quote it")
    return table


def shown_value(value: Any) -> str:
    """Return a value as JSON for messages, not all of a long one; the kind of a list or a table."""
    is_plain = value is None or isinstance(value, str | int | float | bool)
    shown = json.dumps(value) if is_plain else _kind(value)
    return shown if len(shown) <= MOST_SHOWN else f"{shown[:MOST_SHOWN]}…"


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a table"
    return "a list" if isinstance(value, list) else f"a value of type {type(value).__name__}"


def _check_unique(keys: Iterable[str]) -> None:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            raise ValueError(f"key {key!r} occurs twice")
        seen.add(key)


def _from_json(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        _check_unique(key for key, _ in pairs)
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error}") from None


def _from_yaml(text: str) -> Any:
    import yaml

    class Unique(yaml.SafeLoader):
        """Refuses equal keys; PyYAML uses the last of them."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            merge = "tag:yaml.org,2002:merge"
            _check_unique(str(key.value) for key, _ in node.value if key.tag != merge)
            found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
            return found

    try:
        return yaml.load(text, Loader=Unique)  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise ValueError(f"not valid YAML: {error}") from None
