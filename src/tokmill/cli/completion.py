"""`tokmill completion`."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, add_completion_class, get_completion_class

from tokmill.cli.screen import show_styled
from tokmill.errors import UsageError

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_TOKMILL_COMPLETE"
"""The same as in `cli.main`, which imports this module."""


class _Bash(BashComplete):
    """Completion in bash, which takes `--to=nano` for three words; click expects one or two."""

    name = "bash"

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the incomplete one, and that one."""
        words, incomplete = super().get_completion_args()
        return [word for word in words if word != "="], incomplete.removeprefix("=")


def register() -> None:
    """Let click answer bash with the class above."""
    add_completion_class(_Bash)


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
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
    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"this version of click knows no completion for {shell}: update click")
    script = kind(ctx.find_root().command, {}, "tokmill", VARIABLE).source()
    show_styled(script.strip("\n"))
