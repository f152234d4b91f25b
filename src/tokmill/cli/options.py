"""Options made from settings, and the help that groups options below headings.

Each setting of the schema is a keyword argument; an option reads its value from text, as a variable
does. What a command does with the values is what the Python function of its name does.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokmill.cli.completion import completer, directories, files
from tokmill.cli.screen import show_styled
from tokmill.errors import UsageError
from tokmill.settings.declare import UNITS
from tokmill.settings.names import Setting, by_keyword, from_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    Command = Callable[..., None]
    Decorator = Callable[[Command], Command]
    Groups = dict[str, list[tuple[click.Option, tuple[str, str]]]]

_LONGEST_CHOICES = 65
"""More characters of choices do not fit on a line of help; they stand in its text."""
_FIRST_COLUMN = 24
"""Width of the names on a first screen, where longer ones have a line of their own."""
_AFTER_FIRST_SENTENCE = re.compile(r"\. (?=\S).*?(?= One of |  \[|$)")
_MOST_NAMED = 3
"""A first screen names so many options of a subject."""
_SHORT = {"tokenizer": "-t", "output": "-o", "model": "-m"}

_HEADINGS = {
    "input.sources": "Input",
    "tokenizer.path": "Tokenizer",
    "render.renderer": "Text of a record",
    "sft.schema": "Records",
    "sft.template": "Template",
    "sft.preset": "Trained tokens",
    "sft.too_long": "Long samples and packing",
    "output.dir": "Output",
    "limits.min_tokens": "Limits and errors",
    "run.engine": "Engine and workers",
    "model.name": "Model",
    "training.gpu": "Machines",
    "training.precision": "Precision and optimizer",
    "training.micro_batch": "Batch and activations",
    "training.framework": "Sharding, offload and parallelism",
    "training.adapter": "Adapters",
    "training.metric_batches": "Evaluation",
    "training.initialization": "Host RAM and loading of the dataset",
    "training.fragmentation": "Time, cost, disk and fragmentation",
    "inference.batch": "Inference",
}
"""Headings of the help, by the key of the first setting below each."""


class Option(click.Option):
    """An option that begins a group of the help if it has a heading."""

    def __init__(self, *names: Any, heading: str = "", **attributes: Any) -> None:
        super().__init__(*names, **attributes)
        self.heading = heading


class GroupedCommand(click.Command):
    """A command whose help groups options below headings.

    With `first`, names of parameters, `--help` shows these and names the subjects of the others,
    which are the first words of headings. `--help SUBJECT` shows one, `--help all` every option.
    """

    def __init__(self, *names: Any, first: Collection[str] = (), **attributes: Any) -> None:
        super().__init__(*names, **attributes)
        self.first = (*first, "subject")

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return `--help`; with a first screen it takes a subject."""
        if len(self.first) > 1 and self._help_option is None:
            self._help_option = click.Option(
                [*ctx.help_option_names, "subject"], is_flag=False, flag_value="", is_eager=True,
                expose_value=False, callback=self._show_help, metavar="[SUBJECT]",
                help="Show this page, the options of a subject, or all.",
            )  # fmt: skip
        return super().get_help_option(ctx)

    def _show_help(self, ctx: click.Context, _: click.Parameter, subject: str | None) -> None:
        """Print the help and exit; `subject`: None without `--help`, "" for the first screen."""
        if subject is None or ctx.resilient_parsing:
            return
        groups = {heading.split()[0].rstrip(",").lower(): heading for heading in self._groups(ctx)}
        formatter = ctx.make_formatter()
        self.format_usage(ctx, formatter)
        if subject in groups:
            self.format_options(ctx, formatter, groups[subject])
        elif subject == "all":
            self.format_help_text(ctx, formatter)
            self.format_options(ctx, formatter)
        elif subject:
            ctx.fail(f"no such subject {subject!r}: expected one of {', '.join(groups)} or all")
        else:
            self.format_help_text(ctx, formatter)
            self._write_first(ctx, formatter, groups)
        show_styled(formatter.getvalue().rstrip())
        ctx.exit()

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter, only: str = ""
    ) -> None:
        """Write the options, each below the last heading before it; `only`: those of a heading."""
        for heading, options in self._groups(ctx).items():
            if only in ("", heading):
                with formatter.section(heading):
                    formatter.write_dl([record for _, record in options])

    def _write_first(
        self, ctx: click.Context, formatter: click.HelpFormatter, subjects: Mapping[str, str]
    ) -> None:
        """Write the first options in one sentence, and the names of others by subject."""
        groups = self._groups(ctx)
        first, rows = [], []
        for subject, heading in subjects.items():
            first += [record for option, record in groups[heading] if option.name in self.first]
            names = [each.opts[0] for each, _ in groups[heading] if each.name not in self.first]
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            rows.append((f"--help {subject}", ", ".join(names[:_MOST_NAMED]) + more))
        with formatter.section("Options"):
            summaries = [(names, _AFTER_FIRST_SENTENCE.sub(".", text, 1)) for names, text in first]
            formatter.write_dl(summaries, col_max=_FIRST_COLUMN)
        with formatter.section("More options"):
            formatter.write_dl([*rows, ("--help all", "all options")])

    def _groups(self, ctx: click.Context) -> Groups:
        """Return options that are not hidden and their help, by the last heading before each."""
        groups: Groups = {}
        heading = "Options"
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)  # None: hidden
            if record is not None and isinstance(option, click.Option):
                heading = getattr(option, "heading", "") or heading
                groups.setdefault(heading, []).append((option, record))
        return groups


def with_options(*added: Decorator) -> Decorator:
    """Return what adds several options and arguments to a command, in this order."""

    def add(command: Command) -> Command:
        for option in reversed(added):
            command = option(command)
        return command

    return add


class _NamedPath(click.Path):
    """A path; that of a variable which is not set would be the working directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; raises `UsageError` for an empty name."""
        if value == "":
            raise UsageError("an empty name: expected a path (is a variable not set?)")
        return super().convert(value, param, ctx)


PATH = _NamedPath(path_type=Path)
directory_argument = click.argument("directory", type=PATH, shell_complete=directories)
moved_tokenizer = click.option(
    "--tokenizer",
    "-t",
    default="",
    shell_complete=files,
    help="The tokenizer, if not the one that the dataset keeps.",
)
input_argument = click.argument("paths", nargs=-1, metavar="[INPUT]...", shell_complete=files)


def config_option(heading: str) -> Decorator:
    """Return what adds `--config` to a command."""
    return click.option(
        "--config", "-c", "config_file", cls=Option, heading=heading,
        type=PATH, metavar="FILE",
        help="Settings in TOML. Options override them, and so do environment variables, such as "
        "TOKMILL_MAX_TOKENS for --max-tokens.",
    )  # fmt: skip


def setting_options(*sections: str, hidden: Collection[str] = ()) -> Decorator:
    """Return what adds the options of sections to a command.

    A setting of another section, by its key, stands under the heading of the bill. `hidden`:
    sections whose options the help does not list.
    """
    return with_options(
        *(
            setting_option(
                setting,
                "Bill" if setting.key in sections else _HEADINGS.get(setting.key, ""),
                is_hidden=setting.section in hidden,
            )
            for setting in by_keyword(sections).values()
            if not (setting.name == "paths" or setting.metadata.get("is_hidden"))
        )
    )


def setting_option(setting: Setting, heading: str = "", *, is_hidden: bool = False) -> Decorator:
    """Return what adds the option of a setting, which is named after its keyword, to a command."""
    metadata, keyword = setting.metadata, setting.keyword
    table = metadata.get("table")
    choices = tuple(filter(None, metadata.get("choices", ())))
    shown, one_of = "|".join(choices), ""
    if len(shown) > _LONGEST_CHOICES:
        shown, one_of = "", f" One of {', '.join(choices)}."
    if table is not None:
        shown = "|".join((*table.choices, "…"))
    default = f"  [default: {text}]" if (text := default_text(setting)) else ""
    default += f"  [env var: {setting.variable}]" if setting.is_shared else ""
    names = [setting.option, keyword]
    if setting.kind is bool and setting.section != "export":
        names[0] += f"/--no-{setting.option.removeprefix('--')}"
    if keyword in _SHORT:
        names.append(_SHORT[keyword])
    return click.option(
        *names,
        cls=Option,
        heading=heading,
        is_flag=setting.kind is bool,
        type=bool if setting.kind is bool else str,
        metavar=f"[{shown}]" if shown else _metavar(setting),
        multiple=isinstance(setting.default, tuple),
        default=None,
        hidden=is_hidden,
        help=f"{metadata['help']}{one_of}{default}",
        shell_complete=completer(setting.key, choices, table),
        callback=None if setting.section == "export" else partial(_value, setting),
    )


def _value(setting: Setting, _ctx: click.Context, _option: click.Parameter, value: Any) -> Any:
    """Return the value of an option; None if it is not given.

    Raises:
        UsageError: the text is no value of the setting.
    """
    try:
        if isinstance(value, tuple):
            return [item for text in value for item in from_text(setting, text)] or None
        return from_text(setting, value) if isinstance(value, str) else value
    except UsageError as error:
        raise UsageError(error.args[0], setting.key) from None


def _metavar(setting: Setting) -> str | None:
    if "unit" in setting.metadata:
        return UNITS[setting.metadata["unit"]].metavar.upper()
    kinds = {int: "INTEGER", float: "FLOAT", bool: None}
    return setting.metadata.get("metavar") or kinds.get(setting.kind, "TEXT")


def default_text(setting: Setting) -> str:
    """Return a setting's default; "" for none: an empty text, a flag, a 0 that is not allowed."""
    value: Any = setting.default
    is_unset = value == -1 or (value == 0 and setting.metadata.get("minimum", 0) > 0)
    is_unset = is_unset or (value and value == setting.metadata.get("maximum"))
    if isinstance(value, bool) or value in ("", ()) or is_unset:
        return ""
    if isinstance(value, tuple):
        return ",".join(value)
    if setting.metadata.get("unit") == "bytes" and value:
        return f"{value >> 30} GiB" if value >= 1 << 30 else f"{value >> 20} MiB"
    return str(value)


choice_options = with_options(
    click.option("--split", default="", help="Show documents of this split, train or val."),
    click.option(
        "--source",
        default="",
        help="Show documents of this source, input file or directory of inputs.",
    ),
    click.option("--seed", default=0, help="Draw other documents.  [default: 0]"),
)
"""The options that choose the documents to be shown."""
