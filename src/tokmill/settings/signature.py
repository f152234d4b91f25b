"""Functions that show every setting they take: in their signature, and in their help.

A function takes its settings as `**settings`, whose types stand in `arguments.pyi` for type
checkers. Programs that ask a running Python (`help`, the completion of notebooks) see what is
written here.
"""

from __future__ import annotations

import functools
import inspect
import textwrap
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from tokmill.settings.names import Setting

Function = TypeVar("Function", bound=Callable[..., Any])

IN_SIGNATURES = ("input.paths", "tokenizer.path", "output.dir", "model.name")
"""Settings that are parameters of the functions."""
IN_SIGNATURE_OF_MIX = ("mix.inputs", "mix.output")
_BOOLEAN_TOO = ("mix.dedup", "mix.shuffle")
_WIDTH = 96


def with_settings(settings: Iterable[Setting]) -> Callable[[Function], Function]:
    """Return a decorator that lists settings in place of the `**settings` of a function.

    Settings that are parameters of their own are left out. The default that is shown is the one
    that holds where neither a variable nor a file names another; None, where tokmill decides or
    nothing is done. The function refuses what stands for None on the command line, such as ''.
    """
    known = {setting.keyword: setting for setting in settings}

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        left_out = (*IN_SIGNATURES, *IN_SIGNATURE_OF_MIX)
        listed = {name: s for name, s in known.items() if s.key not in left_out}
        added = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None if s.is_optional else s.default,
                annotation=type_text(s),
            )
            for name, s in listed.items()
        ]

        @functools.wraps(function)
        def checked(*arguments: Any, **keywords: Any) -> Any:
            for name, value in keywords.items():
                if name in known:
                    known[name].refuse_empty(value)
            return function(*arguments, **keywords)

        shown: Any = checked
        shown.__signature__ = signature.replace(parameters=[*own, *added])
        shown.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{_explained(listed)}"
        return cast("Function", checked)

    return decorate


def type_text(setting: Setting) -> str:
    """Return the type of a keyword argument, with the names of `arguments.pyi`.

    None is what is not given, also where the default is something else.
    """
    return f"{_type_of_value(setting)} | None"


def _type_of_value(setting: Setting) -> str:
    """Return the type of a value that is given."""
    metadata: Any = setting.metadata
    if setting.key == "render.renderer":
        return "str | Callable[[Any], Any]"
    if setting.key == "input.where":
        return "str | Callable[[dict[str, Any]], bool]"
    if setting.key == "input.sources":
        return "Sequence[Source | Mapping[str, Any]]"
    if setting.key in _BOOLEAN_TOO:
        return f"bool | {setting.kind.__name__}"
    if metadata.get("is_mapping"):
        return "Pairs"
    if metadata.get("is_json"):
        return "str | Mapping[str, Any]"
    if setting.kind in (tuple, tuple[str, ...]):
        return "Names"
    return "Amount" if "unit" in metadata else str(setting.kind.__name__)


def _explained(settings: dict[str, Setting]) -> str:
    """Return a section of a docstring that says what each setting means."""
    lines = ["Settings:"]
    for name, setting in settings.items():
        lines += textwrap.wrap(
            f"{name}: {setting.metadata['help']}",
            _WIDTH,
            initial_indent="    ",
            subsequent_indent="        ",
        )
    return "\n".join(lines)
