"""Writes what is generated from the code: pages of the site, tables, types of keyword arguments.

    python -m bench.pages

This writes the tables of `docs/memory.md` and `docs/audit.md`, between `<!-- NAME: begin -->` and
`<!-- NAME: end -->`, and `src/tokmill/settings/arguments.pyi`, which type checkers and editors read
(`bench/arguments_stub.py`). A test compares all with the code. `make docs` adds what is not in
the repository (`bench/site_links.py`): the pages `api.md` and `formulas.md`, and the tables of
`docs/settings.md`.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bench import gpu_measured, memory_grid
from bench.arguments_stub import stub
from bench.tables import table
from tokmill.bill.states.precision import SCHEMES
from tokmill.bill.text.formulas import formulas_page
from tokmill.cli.options import default_text
from tokmill.inspect.audit_kinds import KINDS
from tokmill.settings.names import Setting, schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[1]
MODULES = ("tokmill", "tokmill.bill", "tokmill.loader")
LINE_LENGTH = 96
HEAD = """# Python interface

Made from the docstrings. Names that are not on this page are private.
"""
COMMANDS = {
    "render": "pretrain", "sft": "sft", "model": "bill", "training": "bill", "inference": "bill",
}  # fmt: skip
"""The command of a section of settings, if it is not of both recipes."""
_SECTION = re.compile(r"^(Args|Returns|Yields|Raises|Attributes|Example|Examples):$")
_ITEM = re.compile(r"^ {4}(\S+): (.*)$")


def main() -> int:
    """Write every file."""
    for name, text in generated().items():
        (ROOT / name).write_text(text, encoding="utf-8")
    return 0


def built() -> dict[str, str]:
    """Return the pages that only the site has, by their place in it."""
    return {"api.md": api_page(), "formulas.md": formulas_page()}


def generated() -> dict[str, str]:
    """Return the files of the repository that the code decides, by name, as they should be."""
    memory = with_block(_page("docs/memory.md"), "schemes", scheme_table())
    memory = with_block(memory, "measured", gpu_measured.scored(gpu_measured.scores()))
    return {
        "docs/audit.md": with_block(_page("docs/audit.md"), "kinds", kinds_table()),
        "docs/memory.md": with_block(memory, "grid", grid_summary()),
        "src/tokmill/settings/arguments.pyi": stub(),
    }


def _page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def with_block(page: str, name: str, text: str) -> str:
    """Return a page with a text between the two comments of a block.

    Raises:
        ValueError: the comments are not there, once each, in order.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    start, stop = page.find(begin), page.find(end)
    if start < 0 or stop < start or page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"expected the lines {begin} and {end} once each")
    return f"{page[:start]}{begin}\n{text}\n{page[stop:]}"


# docs/audit.md


def kinds_table() -> str:
    """Return the kinds of faults that an audit looks for."""
    rows = [(f"`{name}`", kind.means, kind.hurts, kind.of) for name, kind in KINDS.items()]
    head = ("kind", "a sample where", "what training does", "in")
    return table(head, rows, n_texts=len(head))


# docs/memory.md


def scheme_table() -> str:
    """Return the bytes per parameter of each precision scheme."""
    head = ("scheme", "weight", "gradient", "its copy", "master", "Adam", "sum", "computed in")
    rows = []
    for name, s in SCHEMES.items():
        amounts = (s.weight, s.gradient, s.main_gradient, s.master, 2 * s.moment)
        computed = {2: "16 bit", 4: "32 bit"}[s.computed]
        rows.append((f"`{name}`", *map(str, amounts), str(sum(amounts)), computed))
    return table(head, rows)


def grid_summary() -> str:
    """Score the stored grid of MemTracker with the formulas as they are."""
    scores = [score for row in memory_grid.stored() for score in memory_grid.scores_of(row)]
    peaks = [abs(score.error) for score in scores if score.category == "peak"]
    parts = [abs(s.error) for s in scores if s.counted and s.category != "peak"]
    return (
        f"{len(peaks)} training steps on fake tensors: greatest error of a peak {max(peaks):.2%},\n"
        f"of a category that is at least 1% of it {max(parts):.2%}. "
        "`python -m bench.memory_grid --score` prints each."
    )


# The tables of docs/settings.md


def settings_tables() -> str:
    """Return every setting with its option, default and help, a table for each section."""
    lines = []
    for section, settings in schema().items():
        lines += [f"### [{section}], of {COMMANDS.get(section, 'pretrain and sft')}", ""]
        lines += ["| key | option | default | meaning |", "|---|---|---|---|"]
        for setting in settings.values():
            option = "INPUT" if setting.name == "paths" else setting.option
            option = "" if setting.metadata.get("is_hidden") else f"`{option}`"
            meaning = " ".join(_help(setting).split())
            cells = (f"`{setting.name}`", option, default_text(setting), meaning)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines[:-1])


def _help(setting: Setting) -> str:
    """Return the help of a setting and its choices; what looks like HTML is code."""
    text: str = setting.metadata["help"].replace("<", "&lt;").replace("*", "\\*")
    choices = [choice for choice in setting.metadata.get("choices", ()) if choice]
    return f"{text} One of {', '.join(choices)}." if choices else text


# The page api.md


def api_page() -> str:
    """Return the page of the public names, from their docstrings."""
    parts = [HEAD]
    for name in MODULES:
        parts += _module(importlib.import_module(name))
    parts += _keywords()
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).strip() + "\n"


def public(module: ModuleType) -> dict[str, Any]:
    """Return the public names of a module that are not modules, each with its object."""
    found = {name: getattr(module, name) for name in module.__all__}
    return {name: value for name, value in found.items() if not isinstance(value, ModuleType)}


def _module(module: ModuleType) -> Iterator[str]:
    yield f"## {module.__name__}\n\n{prose(inspect.getdoc(module) or '')}\n"
    for name, value in public(module).items():
        title = f"### `{module.__name__}.{name}`\n"
        if inspect.isclass(value):
            yield f"{title}\n{prose(inspect.getdoc(value) or '')}\n"
            yield from _members(value)
        elif callable(value):
            yield f"{title}\n{_signature(name, value)}\n{prose(inspect.getdoc(value) or '')}\n"
        else:
            yield f"{title}\n`{value!r}`\n"


def _members(cls: type) -> Iterator[str]:
    for name, value in vars(cls).items():
        is_public = not name.startswith("_") or name in ("__len__", "__getitem__", "__iter__")
        function = _getter(value) or value
        if isinstance(function, classmethod | staticmethod):
            function = function.__func__
        if not is_public or not inspect.isfunction(function):
            continue
        text = prose(inspect.getdoc(function) or "")
        if _getter(value):
            kind = inspect.signature(function).return_annotation
            yield f"#### `{cls.__name__}.{name}`\n\n```text\n{name}: {_Bare(kind)!r}\n```\n{text}\n"
        else:
            yield f"#### `{cls.__name__}.{name}`\n\n{_signature(name, function)}\n{text}\n"


def _getter(value: object) -> Callable[..., Any] | None:
    if isinstance(value, property):
        return value.fget
    return value.func if isinstance(value, cached_property) else None


def _signature(name: str, function: Callable[..., Any]) -> str:
    """Return the signature, one parameter per line if it is long."""
    found = inspect.signature(function)
    texts: list[str] = []
    has_star = False
    for one in found.parameters.values():
        if one.name in ("self", "cls"):
            continue
        has_star |= one.kind is one.VAR_POSITIONAL
        if one.kind is one.KEYWORD_ONLY and not has_star:
            texts.append("*")
            has_star = True
        texts.append(str(one.replace(annotation=_Bare(one.annotation))))
    result = f" -> {_Bare(found.return_annotation)!r}"
    line = f"{name}({', '.join(texts)}){result}"
    if len(line) > LINE_LENGTH:
        line = "\n".join([f"{name}(", *(f"    {text}," for text in texts), f"){result}"])
    return f"```text\n{line}\n```"


@dataclasses.dataclass(frozen=True, slots=True)
class _Bare:
    """An annotation that is shown without quotes."""

    annotation: Any

    def __repr__(self) -> str:
        if isinstance(self.annotation, str):
            return self.annotation
        return str(getattr(self.annotation, "__name__", self.annotation))


def prose(docstring: str) -> str:
    """Return a docstring as Markdown: its sections become bold words, their items lists."""
    lines: list[str] = []
    in_section = in_example = False
    for line in docstring.splitlines():
        section = _SECTION.match(line)
        if section:
            in_section = True
            lines += [f"**{section[1]}**", ""]
            continue
        is_example = line.lstrip().startswith((">>>", "..."))
        if is_example and not in_example:
            lines.append("```pycon")
        elif in_example and not line.strip():
            lines.append("```")
            in_example = False
        in_example = in_example or is_example
        item = _ITEM.match(line) if in_section and not in_example else None
        lines.append(f"- `{item[1]}`: {item[2]}" if item else _dedented(line, in_section))
    if in_example:
        lines.append("```")
    return "\n".join(lines).strip() + "\n"


def _dedented(line: str, in_section: bool) -> str:
    return "  " + line.lstrip() if in_section and line.startswith("     ") else line


def _keywords() -> Iterator[str]:
    """Yield the settings as keyword arguments, a table for each section."""
    yield "## Settings\n\nKeyword arguments of the functions above, and keys of a TOML file.\n"
    for section, settings in schema().items():
        yield f"### `[{section}]`\n\n| keyword | default | meaning |\n|---|---|---|"
        for setting in settings.values():
            text = str(setting.metadata["help"]).replace("|", "\\|")
            yield f"| `{setting.keyword}` | `{setting.default!r}` | {text} |"
        yield ""


if __name__ == "__main__":
    sys.exit(main())
