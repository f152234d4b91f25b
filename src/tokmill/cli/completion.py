"""`tokmill completion`, and values that a shell completes: names of trainers and so on, and files.

Bash and zsh show names that match, and complete files where none does. Nothing is imported before
the shell asks for a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ZshComplete

from tokmill.cli.screen import show_styled

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

VARIABLE = "_TOKMILL_COMPLETE"
"""A shell sets it when it asks for completions; click looks for this name."""

FILES, DIRECTORIES = "file", "dir"


def completer(key: str, choices: Collection[str], table: Any = None) -> Completer | None:
    """Return what completes a setting such as `training.gpu`; None if nothing does.

    `choices`, `table`: the names that the setting may have.
    """
    if key in _SETTINGS:
        return named(*_SETTINGS[key])
    names = choices if table is None else table.choices
    return named(lambda: names) if names else None


def named(names: Callable[[], Iterable[str]] = tuple, paths: str = "") -> Completer:
    """Return a completer of names, and of paths if `paths` is FILES or DIRECTORIES."""

    def complete(ctx: click.Context, param: click.Parameter, text: str) -> list[CompletionItem]:
        of_paths = [CompletionItem(text, type=paths)] if paths else []
        begin = text.lower()
        return of_paths + [
            CompletionItem(name) for name in names() if name.lower().startswith(begin)
        ]

    return complete


files = named(paths=FILES)
directories = named(paths=DIRECTORIES)


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
    from tokmill.chat.own_templates import NAMES

    return sorted({"tokenizer", *NAMES})


def _patterns() -> list[str]:
    from tokmill.tokenizer.tiktoken_file import encodings

    return sorted(encodings())


_SETTINGS: dict[str, tuple[Callable[[], Iterable[str]], str]] = {
    "tokenizer.path": (tuple, FILES),
    "tokenizer.pattern": (_patterns, ""),
    "sft.template": (_templates, FILES),
    "output.dir": (tuple, DIRECTORIES),
    "model.name": (_models, FILES),
    "training.gpu": (_gpus, ""),
}


class Bash(BashComplete):
    """Completion in bash, which takes `--to=nano` for three words; click expects one or two."""

    name = "bash"

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the incomplete one, and that one."""
        words, incomplete = super().get_completion_args()
        return [word for word in words if word != "="], incomplete.removeprefix("=")


SHELLS = {"bash": Bash, "zsh": ZshComplete, "fish": FishComplete}


@click.command("completion")
@click.argument("shell", type=click.Choice(tuple(SHELLS)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options and their values in a shell.

    Bash needs version 4.4 or newer.

    \b
    Examples:
      echo 'eval "$(tokmill completion bash)"' >> ~/.bashrc
      echo 'eval "$(tokmill completion zsh)"' >> ~/.zshrc
      tokmill completion fish > ~/.config/fish/completions/tokmill.fish
    """
    script = SHELLS[shell](ctx.find_root().command, {}, "tokmill", VARIABLE).source()
    show_styled(script.strip("\n"))
