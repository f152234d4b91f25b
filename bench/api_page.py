"""Writes docs/api.md from the docstrings of the public names.

python -m bench.api_page
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

from tokmill.settings.names import schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
MODULES = ("tokmill", "tokmill.bill", "tokmill.loader")
LINE_LENGTH = 96
HEAD = """# Python interface

Generated from the docstrings by `python -m bench.api_page`. Names that are not on this page are
private.
"""
_SECTION = re.compile(r"^(Args|Returns|Yields|Raises|Attributes|Example|Examples):$")
_ITEM = re.compile(r"^ {4}(\S+): (.*)$")


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    return 0


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    for name in MODULES:
        parts += _module(importlib.import_module(name))
    parts += _settings()
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


def _settings() -> Iterator[str]:
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
