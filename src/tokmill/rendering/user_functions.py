"""Functions of the user, as settings: a renderer, and the filter of records.

A setting holds text. So a function that Python can import is `module:name`, and one that only this
process has is kept here, by a name that ends with the hash of its code.
"""

from __future__ import annotations

import hashlib
import inspect
import pickle
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial, reduce
from itertools import chain
from textwrap import shorten
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from tokmill.errors import UsageError
from tokmill.extensions import DOTTED_PATH, Extension, TableEntry, find_path, one_line

if TYPE_CHECKING:
    from tokmill.settings.schema import Config


_MAIN = "__main__:"
_local: dict[str, tuple[Callable[..., Any], str]] = {}
"""Functions of this process that no other process can import, and their sha256, by target."""

_LINE_CHARACTERS = 120
_SHOWN_BYTES = 80


def function_setting(function: str | Callable[..., Any]) -> str:
    """Return the value of a setting for a name, a dotted path or a function.

    A function that other processes cannot import, as of `__main__`, a notebook cell or a lambda, is
    kept in this process: it works with one worker.
    """
    if isinstance(function, str):
        return function
    name = getattr(function, "__qualname__", type(function).__qualname__)
    if _can_be_imported(function):
        return f"{function.__module__}:{name}"
    sha256 = _identity(function).hex()
    target = f"{_MAIN}{name}@{sha256[:12]}"  # two lambdas have one name
    _local[target] = function, sha256
    return target


def _can_be_imported(function: Callable[..., Any]) -> bool:
    """Return whether other processes find a function by its module and its name."""
    module, name = (getattr(function, key, "") for key in ("__module__", "__qualname__"))
    if not name or module == "__main__":
        return False
    try:
        found: object = reduce(getattr, name.split("."), sys.modules[module])
    except (AttributeError, KeyError):
        return False
    return found is function


def is_local(name: str) -> bool:
    """Return whether a setting is a function of this process alone."""
    return name.startswith(_MAIN)


def local_function(config: Config) -> str:
    """Return a function of a run, or of one of its sources, that this process alone has.

    With the name of its setting, as in `renderer __main__:render`; '' if there is none.
    """
    return next((f"{kind} {name}" for kind, name in functions_of(config) if is_local(name)), "")


def functions_of(config: Config) -> Iterator[tuple[str, str]]:
    """Yield the functions of a run and of its sources, each after the name of its setting."""
    used = [("renderer", config.render.renderer), ("where", config.input.where)]
    for source in config.input.sources:
        used += [(kind, str(source.settings.get(kind) or "")) for kind in ("renderer", "where")]
    for kind, name in used:
        is_function = name if kind == "where" else is_local(name) or DOTTED_PATH.fullmatch(name)
        if is_function:
            yield kind, name


def find_function(kind: str, name: str) -> TableEntry:
    """Return a function by dotted path, or one of this process, with its identity.

    `kind`: the setting, such as `where`, for messages.

    Raises:
        UsageError: it is not there, or cannot be imported.
    """
    if not is_local(name):
        return find_path(kind, name)
    if name not in _local:
        raise UsageError(
            f"{kind} {name}: no other process can import a function of __main__, a notebook cell "
            "or a lambda: put it into a module, or use one worker"
        )
    function, sha256 = _local[name]
    return TableEntry(function, Extension(kind, name, name, "", "", sha256))


def parameter_of(function: Callable[..., Any], label: str) -> inspect.Parameter | None:
    """Return the one parameter of a function; None of some functions in C.

    `label`: begins the message of an error, such as `where my_filter:keep`.

    Raises:
        UsageError: it takes more than one value, or none.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind({})
    except TypeError:
        raise UsageError(
            f"{label}: expected a function of one record, found parameters {signature}"
        ) from None
    return next(iter(signature.parameters.values()))


def beginning(record: bytes) -> str:
    """Return how a message names a record: by its beginning."""
    return f"the record that begins {record[:_SHOWN_BYTES].decode(errors='replace')!r}"


def raised_by(error: BaseException) -> str:
    """Return the message of a reject for which a function raised, with its line of code."""
    frames = traceback.extract_tb(error.__traceback__)
    line = frames[-1].line if len(frames) > 1 else ""
    return one_line(error) + (f": {shorten(line, _LINE_CHARACTERS)}" if line else "")


def _identity(value: Any, above: frozenset[int] = frozenset()) -> bytes:
    """Return a hash that differs for functions of other code, defaults or captured values.

    `above`: what holds the value, as a function that captures itself does.
    """
    if id(value) in above:
        return b""
    parts = _parts(value)
    if parts is None:
        return hashlib.sha256(_pickled(value)).digest()
    hashes = [_identity(part, above | {id(value)}) for part in parts]
    if isinstance(value, set | frozenset):  # its order differs between processes
        hashes.sort()
    return hashlib.sha256(b"".join(hashes)).digest()


def _parts(value: Any) -> Iterable[Any] | None:
    """Return what a function or a container holds, None for another value."""
    match value:
        case CodeType():
            return value.co_code, value.co_names, *value.co_consts
        case FunctionType():
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            used = () if _can_be_imported(value) else _globals_of(value)
            return value.__code__, value.__defaults__, value.__kwdefaults__, cells, *used
        case MethodType():
            return value.__func__, value.__self__
        case partial():
            return value.func, value.args, value.keywords
        case dict():
            return *value, *value.values()
        case tuple() | list() | set() | frozenset():
            return value
    return None


_PLAIN = (str, bytes, int, float, tuple, list, dict, set, frozenset, re.Pattern, FunctionType)


def _globals_of(function: FunctionType) -> Iterable[Any]:
    """Return the plain values and the functions that a function finds in its module.

    A notebook changes them, such as a limit, and the function does something else. Other values,
    such as a model, may take minutes to be pickled.
    """
    for name in _names_in(function.__code__):
        value = function.__globals__.get(name)
        if isinstance(value, _PLAIN):
            yield value


def _names_in(code: CodeType) -> list[str]:
    """Return the names that code looks up, and that the functions inside of it look up."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return [*code.co_names, *chain.from_iterable(map(_names_in, inner))]


def _pickled(value: Any) -> bytes:
    """Return a value as bytes; of one that cannot be pickled, the name of its type."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:  # whatever somebody else's object raises
        return f"{type(value).__module__}.{type(value).__qualname__}".encode()
