from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import click
import pytest
from click.testing import CliRunner, Result

from tokmill.cli.options import config_from_options, settings_options
from tokmill.errors import UsageError
from tokmill.settings.declare import section_type
from tokmill.settings.names import variable
from tokmill.settings.plain import plain
from tokmill.settings.schema import (
    PRETRAIN_SECTIONS,
    Config,
    InputSettings,
    OutputSettings,
    TokenizerSettings,
)

SETTINGS = [
    (section.name, setting)
    for section in dataclasses.fields(Config)
    if section.name in PRETRAIN_SECTIONS
    for setting in dataclasses.fields(getattr(Config(), section.name))
    if setting.name != "paths"
]


@click.command()
@settings_options(*PRETRAIN_SECTIONS)
def show(paths: tuple[str, ...], config_file: Path | None, **options: Any) -> None:
    """Print the configuration that the command line gives."""
    click.echo(json.dumps(plain(config_from_options(paths, config_file, options))))


def invoke(*arguments: str | Path, **variables: str) -> Result:
    return CliRunner().invoke(show, [str(argument) for argument in arguments], env=variables)


def settings(*arguments: str | Path, **variables: str) -> dict[str, Any]:
    result = invoke(*arguments, **variables)
    assert result.exit_code == 0, result.output
    given: dict[str, Any] = json.loads(result.output)
    return given


def changed(*arguments: str | Path, **variables: str) -> dict[str, Any]:
    """Give only what differs from the defaults, as section.key."""
    defaults = plain(Config())
    return {
        f"{section}.{key}": value
        for section, values in settings(*arguments, **variables).items()
        for key, value in values.items()
        if value != defaults[section][key]
    }


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text('[limits]\nmin_tokens = 1\nmax_tokens = 2\n[run]\nengine = "fastokens"\n')
    return path


def option_of(name: str) -> click.Option:
    (found,) = [
        parameter
        for parameter in show.params
        if isinstance(parameter, click.Option) and parameter.name == name
    ]
    return found


def test_nothing_given_is_the_defaults():
    assert settings() == plain(Config())


@pytest.mark.parametrize(("section", "setting"), SETTINGS, ids=lambda x: getattr(x, "name", x))
def test_every_setting_is_an_option_with_help_and_a_variable(section, setting):
    option = option_of(f"{section}__{setting.name}")
    assert option.help
    assert option.help.startswith(setting.metadata["help"])
    named = option.opts[0].removeprefix("--").replace("-", "_").upper()
    assert option.envvar in (f"TOKMILL_{named}", f"TOKMILL_{section.upper()}_{named}")


def test_one_variable_means_one_setting_of_all_sections():
    variables = [
        variable(section, setting.name)
        for section, hint in get_type_hints(Config).items()
        for setting in dataclasses.fields(section_type(hint))
    ]
    assert len(variables) == len(set(variables))
    assert "TOKMILL_CACHE_DIR" not in variables
    assert {"TOKMILL_SFT_TEMPLATE", "TOKMILL_RENDER_TEMPLATE"} <= set(variables)
    assert {"TOKMILL_SFT_WEIGHTS", "TOKMILL_TRAINING_WEIGHTS"} <= set(variables)


@pytest.mark.parametrize(
    ("words", "old", "new"),
    [
        (("pretrain",), "TOKMILL_TEMPLATE", "TOKMILL_RENDER_TEMPLATE or TOKMILL_SFT_TEMPLATE"),
        (("sft",), "TOKMILL_WEIGHTS", "TOKMILL_SFT_WEIGHTS or TOKMILL_TRAINING_WEIGHTS"),
        (("memory",), "TOKMILL_WEIGHTS", "TOKMILL_SFT_WEIGHTS or TOKMILL_TRAINING_WEIGHTS"),
    ],
)
def test_a_variable_that_may_mean_two_settings_is_refused_with_their_names(
    tokmill: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    old: str,
    new: str,
) -> None:
    monkeypatch.setenv(old, "x")
    outcome = tokmill(*words)
    assert outcome.code == 2
    assert outcome.error == f"{old}: there are two settings of this name: set {new} instead"


def test_a_variable_of_sft_is_none_of_report(
    tokmill: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKMILL_SFT_WEIGHTS", "file")
    monkeypatch.setenv("TOKMILL_TRAINING_WEIGHTS", "nf4")
    outcome = tokmill("memory", "--model", "gpt2", "--adapter", "lora", "--json")
    assert json.loads(outcome.out)["settings"]["training"]["weights"] == "nf4"


def test_help_names_the_variables_that_are_not_named_after_their_option_alone(
    tokmill: Callable[..., Any],
) -> None:
    shown = re.findall(r"\[env\s+var:\s+(\w+)", tokmill("sft", "--help").out)
    assert shown == ["TOKMILL_SFT_TEMPLATE", "TOKMILL_SFT_WEIGHTS"]


def test_every_option_and_variable_is_there_once():
    options = [parameter for parameter in show.params if isinstance(parameter, click.Option)]
    flags = [flag for option in options for flag in option.opts]
    variables = [option.envvar for option in options if option.envvar]
    assert len(flags) == len(set(flags))
    assert len(variables) == len(set(variables)) == len(SETTINGS)
    assert all(option.help for option in options)


def test_the_help_shows_defaults_in_words():
    text = " ".join(invoke("--help").output.split())
    assert "[INPUT]..." in text
    assert "Text between a title and its text. [default: :]" in text
    assert "[default: 64 MiB]" in text
    assert "[default: 1 GiB]" in text
    assert "[default: auto]" in text
    assert "-t, --tokenizer" in text
    assert "-o, --output" in text


def test_every_section_can_be_set_by_options():
    assert changed(
        "a.jsonl", "b.jsonl", "--format", "jsonl", "-t", "tok", "--renderer", "text",
        "-o", "out", "--part-bytes", "8MiB", "--val-fraction", "0.5", "--on-error", "fail",
        "--workers", "3",
    ) == {
        "input.paths": ["a.jsonl", "b.jsonl"],
        "input.format": "jsonl",
        "tokenizer.path": "tok",
        "render.renderer": "text",
        "output.dir": "out",
        "output.part_bytes": 8 << 20,
        "output.val_fraction": 0.5,
        "limits.on_error": "fail",
        "run.workers": 3,
    }  # fmt: skip


def test_a_file_wins_over_the_defaults(config_file):
    assert changed("--config", config_file) == {
        "limits.min_tokens": 1,
        "limits.max_tokens": 2,
        "run.engine": "fastokens",
    }


def test_a_variable_wins_over_the_file_and_an_option_over_both(config_file):
    variables = {"TOKMILL_MIN_TOKENS": "10", "TOKMILL_MAX_TOKENS": "20"}
    assert changed("-c", config_file, "--max-tokens", "200", **variables) == {
        "limits.min_tokens": 10,
        "limits.max_tokens": 200,
        "run.engine": "fastokens",
    }


def test_an_option_can_put_back_a_default_that_the_file_changed(config_file):
    given = settings("-c", config_file, "--min-tokens", "0", "--engine", "auto")
    assert given["limits"]["min_tokens"] == 0
    assert given["run"]["engine"] == "auto"


def test_named_inputs_take_the_place_of_those_of_the_file(tmp_path: Path):
    path = tmp_path / "run.toml"
    path.write_text('[input]\npaths = ["a", "b"]\ncsv_delimiter = ";"\n')
    assert changed("-c", path)["input.paths"] == ["a", "b"]
    assert changed("-c", path, "c") == {"input.paths": ["c"], "input.csv_delimiter": ";"}


def test_the_tokenizer_and_the_output_have_variables_of_their_own():
    assert changed(TOKMILL_TOKENIZER="tok", TOKMILL_OUTPUT="out", TOKMILL_PART_BYTES="1kB") == {
        "tokenizer.path": "tok",
        "output.dir": "out",
        "output.part_bytes": 1000,
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (r"{a}\n{b}", "{a}\n{b}"),
        (r"{a}\t{b}", "{a}\t{b}"),
        (r"{a}\r\n", "{a}\r\n"),
        (r"{a}\\n", r"{a}\n"),
        (r"{a}\x", r"{a}\x"),
        ("{a}\\", "{a}\\"),
        ("{a}\n", "{a}\n"),
        ("{标题}：", "{标题}："),
    ],
)
def test_escapes_in_a_template_are_what_a_shell_cannot_type(given, expected):
    assert settings("--template", given)["render"]["template"] == expected
    assert settings(TOKMILL_RENDER_TEMPLATE=given)["render"]["template"] == expected


def test_a_tab_can_be_named_as_a_delimiter():
    assert settings("--csv-delimiter", r"\t")["input"]["csv_delimiter"] == "\t"


def test_a_backslash_stays_where_no_escape_is_meant():
    assert settings("--eos-token", r"<\n>")["tokenizer"]["eos_token"] == r"<\n>"


def test_escapes_of_the_file_are_those_of_toml(tmp_path: Path):
    path = tmp_path / "run.toml"
    path.write_text("[render]\ntemplate = '{a}\\n'\nseparator = \"\\n\"\n")
    render = settings("-c", path)["render"]
    assert (render["template"], render["separator"]) == (r"{a}\n", "\n")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--part-bytes", "many"], "'--part-bytes': expected a size such as 8MiB or 1GB"),
        (["--workers", "two"], "'--workers': 'two' is not a valid integer"),
        (["--no-such"], "No such option"),
    ],
)
def test_a_wrong_option_is_a_usage_error_that_names_it(arguments, expected):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert expected in result.output


def test_a_wrong_variable_is_a_usage_error_that_names_its_option():
    result = invoke(TOKMILL_WORKERS="two")
    assert result.exit_code == 2
    assert "'two' is not a valid integer" in result.output
    assert "--workers" in result.output


def test_a_value_out_of_range_is_named_by_its_option_and_its_key():
    with pytest.raises(UsageError) as caught:
        config_from_options((), None, {"limits__min_tokens": -1})
    assert str(caught.value) == "--min-tokens (limits.min_tokens): expected at least 0, found -1"


def test_a_wrong_value_of_the_file_is_named_by_the_file_even_if_an_option_wins(tmp_path: Path):
    path = tmp_path / "run.toml"
    path.write_text("[limits]\nmin_tokens = -1\n")
    with pytest.raises(UsageError) as caught:
        config_from_options((), path, {"limits__min_tokens": 5})
    assert str(caught.value) == f"{path}: limits.min_tokens: expected at least 0, found -1"


def test_the_configuration_is_built_from_paths_and_options_alone():
    options = {"tokenizer__path": "tok", "output__dir": "out", "render__template": None}
    assert config_from_options(("a",), None, options) == Config(
        input=InputSettings(paths=("a",)),
        tokenizer=TokenizerSettings(path="tok"),
        output=OutputSettings(dir="out"),
    )
