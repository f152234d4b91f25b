"""All formulas of the bill and their symbols: the page docs/formulas.md."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from textwrap import fill, indent
from types import ModuleType

from tokmill.bill.formula import Formula
from tokmill.bill.text.symbols import SYMBOLS

_WIDTH = 80
_WITHOUT_FORMULAS = ("tokmill.bill.measuring", "tokmill.bill.text")
"""Packages that are not imported."""
_INTRODUCTION = (
    "In Python's arithmetic; min, max and ceil are Python's. Amounts are in bytes unless a name "
    "says otherwise. `tokmill memory --formulas` prints this page; `--explain` prints the formulas "
    "of one bill with the values of their symbols."
)


@dataclass(frozen=True, slots=True)
class Subject:
    """A module of the bill: its path, its first line, and the formulas that it declares."""

    module: str
    title: str
    formulas: tuple[Formula, ...]


def subjects() -> tuple[Subject, ...]:
    """Return all modules of the bill that declare formulas, sorted by name."""
    door = importlib.import_module("tokmill.bill")
    names = sorted(info.name for info in pkgutil.walk_packages(door.__path__, "tokmill.bill."))
    own = (name for name in names if not name.startswith(_WITHOUT_FORMULAS))
    every = (_subject(importlib.import_module(name)) for name in own)
    return tuple(subject for subject in every if subject.formulas)


def formulas_page() -> str:
    """Return all formulas and symbols as a Markdown page with lines of at most 80 characters."""
    blocks = ["# Formulas of the bill", fill(_INTRODUCTION, _WIDTH)]
    for subject in subjects():
        blocks += [f"## {subject.module}", fill(subject.title, _WIDTH), *_groups(subject.formulas)]
    symbols = (
        _item(f"`{name}`: {meaning}" + (f" ({unit})" if unit else ""))
        for name, (meaning, unit) in SYMBOLS.items()
    )
    blocks += ["## Symbols", "\n".join(symbols)]
    return "\n\n".join(blocks) + "\n"


def _groups(formulas: Iterable[Formula]) -> Iterator[str]:
    """Yield source and error of neighbouring formulas that share them, and then these formulas."""
    for (source, error), members in groupby(formulas, lambda each: (each.source, each.error)):
        yield fill(f"Source: {source}. Known error: {error or 'not known'}.", _WIDTH)
        yield "\n".join(map(_formula, members))


def _formula(formula: Formula) -> str:
    """Return a name and its expression, on two lines if one is too short."""
    line = f"- {formula.name}: `{formula.expression}`"
    if len(line) <= _WIDTH:
        return line
    # Markdown would read a line that begins with `*` as an item of a list.
    tied = re.sub(r" ([-+*/]+ )", "\0\\1", f"`{formula.expression}`")
    return "\n".join(
        [_item(f"{formula.name}:"), indent(fill(tied, _WIDTH - 2), "  ").replace("\0", " ")]
    )


def _item(text: str) -> str:
    return fill(f"- {text}", _WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _subject(module: ModuleType) -> Subject:
    title = (module.__doc__ or "").strip().partition("\n")[0]
    path = module.__name__.removeprefix("tokmill.").replace(".", "/") + ".py"
    return Subject(path, title, tuple(dict.fromkeys(_declared(module))))


def _declared(module: ModuleType) -> Iterator[Formula]:
    """Yield the formulas of constants that a module assigns; it may import others."""
    for name in re.findall(r"^(\w+)(?:: .+)? = ", inspect.getsource(module), re.MULTILINE):
        yield from _formulas_in(getattr(module, name, None))


def _formulas_in(value: object) -> Iterator[Formula]:
    if isinstance(value, Formula):
        yield value
    elif isinstance(value, dict | tuple | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _formulas_in(item)
