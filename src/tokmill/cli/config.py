"""`tokmill config`: a settings file with all that it means, and the schema of such files."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokmill.cli.completion import files
from tokmill.cli.options import PATH
from tokmill.cli.screen import show, show_json, show_styled
from tokmill.mixing.settings import MixSettings, mix_settings
from tokmill.settings.load import Values, file_values, read_toml, variable_values
from tokmill.settings.names import by_keyword, plain_value, schema, settings_of
from tokmill.settings.schema import BILL_SECTIONS, PRETRAIN_SECTIONS, SFT_SECTIONS
from tokmill.words import json_text, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCHEMA = 1
_COMMENT_COLUMN = 40
_SECTIONS: dict[str, tuple[str, ...]] = {
    "pretrain": PRETRAIN_SECTIONS,
    "sft": SFT_SECTIONS,
    "memory": BILL_SECTIONS,
}


@dataclass(frozen=True)
class InForce:
    """Settings in force.

    Attributes:
        command: the command that they are for.
        settings: every value, by section and name.
        given: which file or variable gives a setting, by its key; others have their default.
    """

    command: str
    settings: dict[str, dict[str, Any]]
    given: dict[str, str]

    def lines(self) -> Iterator[str]:
        """Yield the settings as lines of TOML, whose texts, numbers and lists are as in JSON."""
        for section, settings in self.settings.items():
            yield ""
            yield f"[{section}]"
            for name, value in settings.items():
                if name == "sources" or value is None:  # tables of their own; not given
                    continue
                line = f"{name} = {json_text(value)}"
                where = self.given.get(f"{section}.{name}")
                yield line if where is None else f"{line:{_COMMENT_COLUMN}}  # {printable(where)}"
        for source in self.settings.get("input", {}).get("sources", ()):
            yield ""
            yield "[[source]]"
            for name, value in source.items():
                yield f"{name} = {json_text(value)}"


@click.group("config")
def command() -> None:
    """Check a settings file, or print the schema by which editors check one.

    \b
    Examples:
      tokmill config check configs/pretrain.toml
      tokmill config schema > tokmill.schema.json
    """


@command.command("check")
@click.argument("file", type=PATH, shell_complete=files)
@click.option("--json", "as_json", is_flag=True, help="Print the settings as JSON.")
def check(file: Path, as_json: bool) -> None:
    """Print the settings in force with a file, or what is wrong with it (exit code 2).

    What is printed is TOML. A comment says what the file or an environment variable gives; all else
    are defaults. Of the bill, only what is given is listed. No input is read: tokmill plan --config
    FILE does that.

    \b
    Examples:
      tokmill config check configs/pretrain.toml
      TOKMILL_WORKERS=8 tokmill config check configs/pretrain.toml --json
    """
    found = _of_mix(file) if "mix" in read_toml(file) else _of_run(file)
    if as_json:
        show_json({"schema": _SCHEMA, **asdict(found)})
        return
    show(f"# tokmill {found.command} --config {file}")
    for line in found.lines():
        show_styled(line)


def _of_run(file: Path) -> InForce:
    """Return the settings of a run; raises `UsageError` where one is wrong."""
    from tokmill.api.jobs import run_config

    of_file = file_values(file)
    command = "sft" if "sft" in of_file else "pretrain"
    config = run_config(command, (), file, {})
    if of_file and set(of_file) <= set(BILL_SECTIONS):
        command = "memory"
    sections = _SECTIONS[command]
    variables = variable_values(by_keyword(sections).values())
    given = {**_keys_of(of_file, str(file)), **_variables_of(variables)}
    settings = {}
    for section, declared in schema().items():
        is_of_run = section in sections and section not in BILL_SECTIONS
        names = [name for name in declared if is_of_run or f"{section}.{name}" in given]
        values = getattr(config, section)
        if names:
            settings[section] = {name: plain_value(getattr(values, name)) for name in names}
    return InForce(command, settings, given)


def _of_mix(file: Path) -> InForce:
    """Return the settings of a mix; raises `UsageError` where one is wrong."""
    chosen = mix_settings(config=file)
    names = settings_of("mix", MixSettings)
    settings = {name: plain_value(getattr(chosen, name)) for name in names}
    return InForce("mix", {"mix": settings}, _keys_of({"mix": read_toml(file)["mix"]}, str(file)))


def _keys_of(values: Values, where: str) -> dict[str, str]:
    """Return where each setting comes from, by its key."""
    return {f"{section}.{name}": where for section in values for name in values[section]}


def _variables_of(values: Values) -> dict[str, str]:
    """Return the variable of each setting that one gives, by its key."""
    settings = [schema()[section][name] for section in values for name in values[section]]
    return {setting.key: setting.variable for setting in settings}


@command.command("schema")
def print_schema() -> None:
    """Print a JSON schema of settings files, by which editors complete, explain and check them.

    Name it in the first line of a file: #:schema ./tokmill.schema.json

    \b
    Examples:
      tokmill config schema > tokmill.schema.json
    """
    from tokmill.mixing.settings import table_of_mix
    from tokmill.settings.json_schema import toml_schema

    show_styled(json.dumps(toml_schema({"mix": table_of_mix()}), indent=2))
