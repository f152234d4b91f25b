"""Values of JSON as typed values: one checker, driven by the types of their fields.

A manifest, a plan or a record may come from a stranger, with a sum that fits. It is read here, so
code behind it takes every attribute without a question:

    class Token(NamedTuple):
        id: Id
        token: Text

    from_json(Token, {"id": 0, "token": "<eos>"})

The key of a field is its name. A field with a default can be missing, and keys of no field are not
looked at: a newer version may have added them. A class with the class method `from_json` reads its
values itself.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache, partial
from typing import (
    Annotated,
    Any,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from tokmill.words import printable

_T = TypeVar("_T")
_Read = Callable[[Any], Any]

_MOST = 1 << 63
_LONGEST_KEY = 40

Count = Annotated[int, range(_MOST)]
Positive = Annotated[int, range(1, _MOST)]
Place = Annotated[int, range(-1, _MOST)]
Id = Annotated[int, range(1 << 32)]
"""Kinds of whole numbers; `Place` is -1 where a format has none."""

Number: TypeAlias = float
Text: TypeAlias = str
"""A number from 0, also a whole one; a string that can be the name of a file."""


class WrongValue(ValueError):
    """A value of JSON is not of its kind; the message begins with its place."""

    def __init__(self, problem: str, place: str = "") -> None:
        super().__init__(problem)
        self.problem, self.place = problem, place

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}" if self.place else self.problem

    def inside(self, outer: str) -> WrongValue:
        """Return the same error of a value inside another one; `outer`: a key, or `[3]`."""
        joint = "." if self.place and not self.place.startswith("[") else ""
        return WrongValue(self.problem, f"{outer}{joint}{self.place}")


def from_json(kind: type[_T], value: Any) -> _T:
    """Return a value of JSON as a value of a class, or of another kind of this module.

    Raises:
        WrongValue: names the first part of it that is not of its kind.
    """
    try:
        read: _T = reader_of(cast("Any", kind))(value)
    except RecursionError:
        raise WrongValue("nested too deeply") from None
    return read


def to_json(value: Any) -> Any:
    """Return a value as plain values for JSON; fields with their default are left out.

    A class with the method `as_json` writes its values itself.
    """
    if hasattr(value, "as_json"):
        return value.as_json()
    if hasattr(value, "_fields") or hasattr(value, "__dataclass_fields__"):
        kind: Any = type(value)
        defaults = _defaults(kind)
        return {
            name: to_json(getattr(value, name))
            for name in field_kinds(kind)[0]
            if name not in defaults or getattr(value, name) != defaults[name]
        }
    if isinstance(value, Mapping):
        return {key: to_json(entry) for key, entry in value.items()}
    return [to_json(entry) for entry in value] if isinstance(value, tuple | list) else value


@cache
def _defaults(kind: Any) -> Mapping[str, Any]:
    """Return the defaults of the fields of a named tuple or a dataclass that have one."""
    if hasattr(kind, "_fields"):
        named: Mapping[str, Any] = kind._field_defaults
        return named
    found = {}
    for field in fields(kind):
        if field.default is not MISSING:
            found[field.name] = field.default
        elif field.default_factory is not MISSING:
            found[field.name] = field.default_factory()
    return found


@cache
def reader_of(kind: Any) -> _Read:
    """Return what checks a value of JSON and returns it as one of a kind; raises `WrongValue`.

    Kinds: a named tuple or a dataclass, `tuple[kind, ...]` for a list, `tuple[kind, kind]` for one
    with so many entries, `Mapping[str, kind]` for an object with any keys, `kind | None` for a
    value that can be null, and strings, numbers and flags. `Annotated` names what a string or
    number can be: a range, a pattern, or a set of strings.
    """
    inner = get_args(kind)
    if get_origin(kind) is Annotated:
        return partial(_limited, inner[1])
    if get_origin(kind) in (types.UnionType, Union):
        read = reader_of(inner[0])
        return lambda value: None if value is None else read(value)
    if get_origin(kind) is tuple:
        return _list_reader(inner)
    if get_origin(kind) is Mapping:
        return _by_name_reader(reader_of(inner[1]))
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if hasattr(kind, "from_json"):
        return partial(_by_class, kind)
    return lambda value: kind(**_object_reader(kind)(value))  # built when it is first read


class ObjectReader:
    """Reads an object of known keys.

    `kinds`: of each key that is looked at. `optional`: the keys that can be missing.
    """

    def __init__(self, kinds: Mapping[str, Any], optional: frozenset[str]) -> None:
        self._readers = [(key, reader_of(kind), key in optional) for key, kind in kinds.items()]

    def __call__(self, value: Any) -> dict[str, Any]:
        """Return the values of the keys that are there; raises `WrongValue`."""
        if not isinstance(value, dict):
            raise WrongValue(_told("an object", value))
        found = {}
        for key, read, is_optional in self._readers:
            if key in value:
                try:
                    found[key] = read(value[key])
                except WrongValue as error:
                    raise error.inside(key) from None
            elif not is_optional:
                raise WrongValue("missing", key)
        return found


@cache
def field_kinds(kind: Any) -> tuple[Mapping[str, Any], frozenset[str]]:
    """Return the kind of each field of a named tuple or a dataclass, and those with a default."""
    hints = get_type_hints(kind, include_extras=True)
    names = kind._fields if hasattr(kind, "_fields") else [field.name for field in fields(kind)]
    return {name: hints[name] for name in names}, frozenset(_defaults(kind))


@cache
def _object_reader(kind: Any) -> ObjectReader:
    """Return the reader of the fields of a named tuple or a dataclass."""
    return ObjectReader(*field_kinds(kind))


def _by_class(kind: Any, value: Any) -> Any:
    """Return a value as its own class reads it."""
    if not isinstance(value, dict):
        raise WrongValue(_told("an object", value))
    return kind.from_json(value)


def _list_reader(inner: tuple[Any, ...]) -> _Read:
    if inner[-1] is ...:
        return partial(_list, reader_of(inner[0]))
    return partial(_fixed_list, [reader_of(kind) for kind in inner])


def _list(read: _Read, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise WrongValue(_told("a list", value))
    found: list[Any] = []
    try:
        for entry in value:
            found.append(read(entry))  # noqa: PERF401  its length is the place of an error
    except WrongValue as error:
        raise error.inside(f"[{len(found)}]") from None
    return tuple(found)


def _fixed_list(readers: list[_Read], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise WrongValue(_told("a list", value))
    if len(readers) != len(value):
        raise WrongValue(f"expected a list of {len(readers)}, found one of {len(value)}")
    found: list[Any] = []
    try:
        for read, entry in zip(readers, value, strict=True):
            found.append(read(entry))
    except WrongValue as error:
        raise error.inside(f"[{len(found)}]") from None
    return tuple(found)


def _by_name_reader(read: _Read) -> _Read:
    def read_all(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise WrongValue(_told("an object", value))
        found = {}
        for key, entry in value.items():
            try:
                found[key] = read(entry)
            except WrongValue as error:
                raise error.inside(_short(key)) from None
        return found

    return read_all


def _limited(limit: Any, value: Any) -> Any:
    """Return a whole number in a range, or a string that a set or a pattern has."""
    if isinstance(limit, range):
        if type(value) is int and value in limit:
            return value
        most = "" if limit.stop == _MOST else f" to {limit.stop - 1:,}"
        words = f"a whole number from {limit.start}{most}"
    elif isinstance(limit, re.Pattern):
        if isinstance(value, str) and limit.fullmatch(value):
            return value
        words = f"a string like {shown(limit.pattern)}"
    else:
        if isinstance(value, str) and value in limit:
            return value
        words = " or ".join(sorted(limit))
    raise WrongValue(_told(words, value))


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < _MOST:
        raise WrongValue(_told("a number from 0", value))
    number: float = value
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str) or not is_text(value):
        raise WrongValue(_told("a string", value))
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise WrongValue(_told("true or false", value))
    return value


_SIMPLE: dict[Any, _Read] = {float: _number, str: _text, bool: _flag, Any: lambda value: value}


def is_text(value: str) -> bool:
    """Return whether a string can be the name of a file: neither zero bytes nor half characters.

    Bytes of a name that are no UTF-8 are kept as Python writes them (`surrogateescape`).
    """
    if value.isascii():
        return "\0" not in value
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def _told(words: str, value: Any) -> str:
    """Return a line that says what was expected of a value, and what was found."""
    return f"expected {words}, found {shown(value)}"


def shown(value: Any) -> str:
    """Return a value as a message shows it: short, and without characters of a terminal."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _short(key: str) -> str:
    """Return a key that may be anything, such as a reason: short and printable."""
    return printable(key if len(key) <= _LONGEST_KEY else f"{key[:_LONGEST_KEY]}…")
