"""Values that a shell completes: names of trainers, models, GPUs and templates, and files.

Bash and zsh show names that match, and complete files where none does. Nothing is imported before
the shell asks for a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import click

    Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

FILES, DIRECTORIES = "file", "dir"


def completer(setting: str, table: Any = None) -> Completer | None:
    """Return what completes a setting such as `training.gpu`; None if nothing does.

    `table`: of the names that the setting may have.
    """
    if setting in _SETTINGS:
        return named(*_SETTINGS[setting])
    return named(lambda: table.choices) if table is not None else None


def named(names: Callable[[], Iterable[str]] | None, paths: str = "") -> Completer:
    """Return a completer of names, and of paths if `paths` is FILES or DIRECTORIES."""

    def complete(ctx: click.Context, param: click.Parameter, text: str) -> list[CompletionItem]:
        found = [CompletionItem(text, type=paths)] if paths else []
        known = names() if names is not None else ()
        begin = text.lower()
        return found + [CompletionItem(name) for name in known if name.lower().startswith(begin)]

    return complete


files = named(None, FILES)
directories = named(None, DIRECTORIES)


def trainers() -> list[str]:
    """Return the names of trainers, of other packages too."""
    from tokmill.extensions import names_of_packages
    from tokmill.tables import TRAINERS

    return sorted({*TRAINERS.rows, *names_of_packages(TRAINERS)})


def _models() -> tuple[str, ...]:
    from tokmill.bill.models.known import known_models

    return known_models()


def _gpus() -> list[str]:
    """Return names as `find_gpu` takes them, without a space: bash would take it for the end."""
    from tokmill.bill.gpus import known_gpus

    return [gpu.name.lower().replace(" ", "-") for gpu in known_gpus()]


def _templates() -> list[str]:
    from tokmill.chat.jinja.training_templates import TRAINING
    from tokmill.chat.templates import BUILT_IN

    return sorted({"tokenizer", *BUILT_IN, *TRAINING})


def _patterns() -> list[str]:
    from tokmill.tokenizer.tiktoken_file import encodings

    return sorted(encodings())


_SETTINGS: dict[str, tuple[Callable[[], Iterable[str]] | None, str]] = {
    "tokenizer.path": (None, FILES),
    "tokenizer.pattern": (_patterns, ""),
    "sft.template": (_templates, FILES),
    "output.dir": (None, DIRECTORIES),
    "model.name": (_models, FILES),
    "training.gpu": (_gpus, ""),
}
