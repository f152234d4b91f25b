"""Options, variables and a file: what they give, and which one wins."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from tokmill.api.jobs import run_config
from tokmill.cli.options import config_option, input_argument, setting_options
from tokmill.errors import UsageError
from tokmill.settings.names import plain
from tokmill.settings.schema import PRETRAIN_SECTIONS, Config


@click.command()
@input_argument
@config_option("Settings")
@setting_options(*PRETRAIN_SECTIONS)
def show(paths: tuple[str, ...], config_file: Path | None, **options: Any) -> None:
    """Print the configuration that the command line gives."""
    click.echo(json.dumps(plain(run_config("pretrain", paths, config_file, options))))


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


@pytest.mark.parametrize(
    ("words", "old", "new"),
    [
        (("pretrain",), "TOKMILL_TEMPLATE", "TOKMILL_RENDER_TEMPLATE or TOKMILL_SFT_TEMPLATE"),
        (("memory",), "TOKMILL_WEIGHTS", "TOKMILL_SFT_WEIGHTS or TOKMILL_TRAINING_WEIGHTS"),
    ],
)
def test_a_variable_that_may_mean_two_settings_is_refused_with_their_names(
    tokmill, monkeypatch, words, old, new
):
    monkeypatch.setenv(old, "x")
    outcome = tokmill(*words)
    assert outcome.code == 2
    assert outcome.error == f"{old}: there are two settings of this name: set {new} instead"


def test_a_variable_of_sft_is_none_of_report(tokmill, monkeypatch):
    monkeypatch.setenv("TOKMILL_SFT_WEIGHTS", "file")
    monkeypatch.setenv("TOKMILL_TRAINING_WEIGHTS", "nf4")
    outcome = tokmill("memory", "--model", "gpt2", "--adapter", "lora", "--json")
    assert json.loads(outcome.out)["settings"]["training"]["weights"] == "nf4"


def test_help_names_the_variables_that_are_not_named_after_their_option_alone(tokmill):
    shown = re.findall(r"\[env\s+var:\s+(\w+)", tokmill("sft", "--help").out)
    names = ("FIELDS", "TEMPLATE", "WEIGHTS", "PACKING", "MAX_SAMPLES_PER_ROW")
    assert shown == [f"TOKMILL_SFT_{name}" for name in names]


def test_a_variable_wins_over_the_file_and_an_option_over_both(config_file):
    variables = {"TOKMILL_MIN_TOKENS": "10", "TOKMILL_MAX_TOKENS": "20"}
    assert changed("-c", config_file, "--max-tokens", "200", **variables) == {
        "limits.min_tokens": 10,
        "limits.max_tokens": 200,
        "run.engine": "fastokens",
    }
    assert "run.engine" not in changed("-c", config_file, "--engine", "auto")


def test_named_inputs_take_the_place_of_those_of_the_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('[input]\npaths = ["a", "b"]\ncsv_delimiter = ";"\n')
    assert changed("-c", path)["input.paths"] == [str(tmp_path / name) for name in ("a", "b")]
    assert changed("-c", path, "c") == {"input.paths": ["c"], "input.csv_delimiter": ";"}


@pytest.mark.parametrize(
    ("option", "given", "expected"),
    [
        ("template", r"{a}\n{标题}\\n", "{a}\n{标题}\\n"),
        ("template", r"{a}\x", r"{a}\x"),
        ("csv-delimiter", r"\t", "\t"),
        ("eos-token", r"<\n>", r"<\n>"),
    ],
)
def test_escapes_are_what_a_shell_cannot_type_in_settings_that_have_them(option, given, expected):
    assert list(changed(f"--{option}", given).values()) == [expected]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--part-bytes", "many"], "output.part_bytes: expected a size such as 8MiB or 1GB"),
        (["--dtype", "uint8"], "output.dtype: expected one of auto, uint16, uint32; found 'uint8'"),
        (["--executor", "slurm"], "run.executor: expected processes, ray or ray:HOST:PORT, found"),
        (["--renderer", "encyclopedia:separator"], "render.renderer: expected encyclopedia:separ"),
        (["--fields", "author=x"], "render.fields: expected ROLE=KEY, such as text=body, "),
        (
            ["--source", "web=x.jsonl"],
            "input.sources: expected the inside of a table of TOML, found 'web=x.jsonl' "
            '(invalid value): write it as in --source \'name = "web", paths = ["FILE"]\'',
        ),
    ],
)
def test_a_wrong_option_is_a_usage_error_that_names_it(arguments, expected):
    error = invoke(*arguments).exception
    assert isinstance(error, UsageError)
    assert str(error).startswith(expected)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("--no-such", ""), ("--batch-bytes", "--part-bytes"), ("--checksum", ""),
    ],
)  # fmt: skip
def test_an_option_that_does_not_exist_is_one_line_with_a_near_one(name, near):
    result = invoke(name, "x")
    assert result.exit_code == 2
    assert f"No such option '{name}'" in result.output.replace(
        f"No such option: {name}", f"No such option '{name}'"
    )
    assert near in result.output


def test_a_wrong_value_of_the_file_is_named_by_the_file_even_if_an_option_wins(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("[limits]\nmin_tokens = -1\n")
    error = invoke("-c", path, "--min-tokens", "5").exception
    assert str(error) == f"{path}: limits.min_tokens: expected at least 0, found -1"


# The recipe of a plan

CHAT = '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "cat"}]}'
PAIR = '{"instruction": "say hello", "output": "hello"}'
TEXT = '{"text": "hello world"}'


@pytest.mark.parametrize(
    ("record", "given", "file", "recipe", "said"),
    [
        (CHAT, {}, "", "sft", "chats (messages[].role, messages[].content)"),
        (PAIR, {}, "", "sft", "questions with answers (instruction, output)"),
        (TEXT, {}, "", "pretrain", "text"),
        (TEXT, {"packing": 64}, "", "pretrain", "text"),
        (CHAT, {"packing": 64}, "", "sft", "chats"),
        (TEXT, {"roles": ["assistant"]}, "", "sft", ""),
        (CHAT, {"renderer": "text"}, "", "pretrain", ""),
        (TEXT, {}, "[sft]\n", "sft", ""),
        (CHAT, {}, "[render]\n", "pretrain", ""),
        (CHAT, {"fields": ["messages=messages"]}, "", "sft", "chats"),
    ],
)
def test_the_recipe_of_a_plan_is_found_and_said(tmp_path, record, given, file, recipe, said):
    source, config_file = tmp_path / "in.jsonl", tmp_path / "run.toml"
    source.write_text(f"{record}\n" * 3)
    config_file.write_text(file)
    notes: list[str] = []
    config = run_config(None, source, config_file, given, notes.append)
    assert ("pretrain" if config.sft is None else "sft") == recipe
    expected = [f"recipe: {recipe}: {source.as_posix()} has {said}"] if said else []
    assert [note[: len(line)] for note, line in zip(notes, expected, strict=True)] == expected
