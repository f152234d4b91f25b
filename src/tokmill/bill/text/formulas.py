"""All formulas of the bill by subject, and their symbols: docs/formulas.md, and as plain values."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from dataclasses import dataclass
from itertools import groupby
from textwrap import fill, indent
from typing import TYPE_CHECKING, Any

from tokmill.bill.formula import Formula, names_in
from tokmill.bill.text.symbols import SYMBOLS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

SCHEMA = 1
_WIDTH = 80
_WITHOUT_FORMULAS = ("tokmill.bill.measuring", "tokmill.bill.text")
"""Packages that are not imported; the first one needs NumPy."""
_INTRODUCTION = (
    "In Python's arithmetic; min, max and ceil are Python's. Amounts are in bytes unless a name "
    "says otherwise. `tokmill memory --formulas` prints this page; `--explain` prints the formulas "
    "of one bill with the values of their symbols."
)


@dataclass(frozen=True, slots=True)
class Subject:
    """A module of the bill, its first line, and the formulas that it declares, in their order."""

    path: str
    title: str
    formulas: tuple[Formula, ...]


def subjects() -> tuple[Subject, ...]:
    """Return every module of the bill that declares formulas, by name."""
    door = importlib.import_module("tokmill.bill")
    names = sorted(info.name for info in pkgutil.walk_packages(door.__path__, "tokmill.bill."))
    own = (name for name in names if not name.startswith(_WITHOUT_FORMULAS))
    found = (_subject(importlib.import_module(name)) for name in own)
    return tuple(subject for subject in found if subject.formulas)


def formulas_json() -> dict[str, Any]:
    """Return all formulas and symbols as plain values."""
    return {
        "schema": SCHEMA,
        "subjects": [
            {
                "module": subject.path,
                "title": subject.title,
                "formulas": [
                    {
                        "name": one.name,
                        "formula": one.expression,
                        "symbols": list(names_in(one.expression)),
                        "source": one.source,
                        "error": one.error,
                    }
                    for one in subject.formulas
                ],
            }
            for subject in subjects()
        ],
        "symbols": {
            name: {"meaning": meaning, "unit": unit} for name, (meaning, unit) in SYMBOLS.items()
        },
    }


def formulas_page() -> str:
    """Return all formulas and symbols as a Markdown page with lines of at most 80 characters."""
    blocks = ["# Formulas of the bill", fill(_INTRODUCTION, _WIDTH)]
    for subject in subjects():
        blocks += [f"## {subject.path}", fill(subject.title, _WIDTH), *_groups(subject.formulas)]
    blocks += ["## Symbols", "\n".join(map(_symbol, SYMBOLS))]
    return "\n\n".join(blocks) + "\n"


def _groups(formulas: Iterable[Formula]) -> Iterator[str]:
    """Yield what neighbours have in common, source and error, and then a list of them."""
    for (source, error), members in groupby(formulas, lambda one: (one.source, one.error)):
        yield fill(f"Source: {source}. Known error: {error or 'not known'}.", _WIDTH)
        yield "\n".join(map(_formula, members))


def _formula(one: Formula) -> str:
    """Return a name and its expression, on a line of its own where one line is too short."""
    line = f"- {one.name}: `{one.expression}`"
    if len(line) <= _WIDTH:
        return line
    # No line begins with an operator, since Markdown would take `*` as the mark of a list.
    tied = re.sub(r" ([-+*/]+ )", "\0\\1", f"`{one.expression}`")
    return "\n".join(
        [_item(f"{one.name}:"), indent(fill(tied, _WIDTH - 2), "  ").replace("\0", " ")]
    )


def _symbol(name: str) -> str:
    meaning, unit = SYMBOLS[name]
    return _item(f"`{name}`: {meaning}" + (f" ({unit})" if unit else ""))


def _item(text: str) -> str:
    return fill(f"- {text}", _WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _subject(module: ModuleType) -> Subject:
    title = (module.__doc__ or "").strip().partition("\n")[0]
    path = module.__name__.removeprefix("tokmill.").replace(".", "/") + ".py"
    return Subject(path, title, tuple(dict.fromkeys(_declared(module))))


def _declared(module: ModuleType) -> Iterator[Formula]:
    """Yield the formulas that a module assigns to names of its own, not those that it imports."""
    for node in ast.parse(inspect.getsource(module)).body:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Name):
                yield from _formulas_in(getattr(module, target.id, None))


def _formulas_in(value: object) -> Iterator[Formula]:
    if isinstance(value, Formula):
        yield value
    elif isinstance(value, dict):
        yield from _formulas_in(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _formulas_in(item)
