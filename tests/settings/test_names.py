"""Each face writes a setting in its own way, and every setting can be set in each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tokmill.cli.main import COMMANDS, load_command
from tokmill.errors import StateError, UnreadInputError, UsageError
from tokmill.mixing.settings import MixSettings
from tokmill.settings.load import build_config, config_from_arguments, file_values
from tokmill.settings.names import (
    Setting,
    every_setting,
    in_options,
    in_python,
    in_toml,
    keyword_errors,
    not_default,
    output_settings,
    plain,
    settings_of,
)
from tokmill.settings.schema import Config
from tokmill.trainers.options import ExportOptions

SETTINGS = list(every_setting())


def other_value(setting: Setting) -> Any:
    """Return a value of a setting that is not its default."""
    metadata = setting.metadata
    if setting.key == "run.executor":
        return "ray:127.0.0.1:6379"
    if setting.key == "input.sources":
        return [{"name": "a", "paths": ["a"]}]
    if metadata.get("is_mapping"):
        return ["messages=m"] if setting.key == "sft.fields" else ["text=body"]
    if metadata.get("is_json"):
        return '{"a": 1}'
    if table := metadata.get("table"):
        return table.choices[1]
    if choices := metadata.get("choices"):
        return next(choice for choice in choices if choice and choice != setting.default)
    if setting.kind == tuple[str, ...]:
        return ["a"]
    if setting.kind is bool:
        return not setting.default
    if setting.kind is str:
        return "a"
    return (
        0.5 if setting.kind is float else (2 if setting.default == 1 else setting.default // 2 or 1)
    )


def text_of(value: Any) -> str:
    """Return a value as an option or a variable has it."""
    if isinstance(value, list):
        is_table = isinstance(value[0], dict)
        return 'name = "a", paths = ["a"]' if is_table else ",".join(value)
    return str(value)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_every_setting_is_a_toml_key_a_variable_and_a_keyword_argument(
    setting, tmp_path, monkeypatch
):
    value = other_value(setting)
    expected = build_config({setting.section: {setting.name: value}})
    assert expected != build_config({setting.section: {}})
    sections = (setting.section,)
    assert config_from_arguments(sections, {setting.keyword: value}) == expected
    if setting.key == "input.sources":
        toml = '[[source]]\nname = "a"\npaths = ["a"]\n'
    else:
        toml = f"[{setting.section}]\n{setting.name} = {json.dumps(value)}\n"
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text(toml)
    assert build_config(file_values(Path("run.toml"))) == expected
    monkeypatch.setenv(setting.variable, text_of(value))
    assert config_from_arguments(sections, {}) == expected


def test_every_setting_that_is_not_hidden_is_an_option_of_a_command():
    commands = [load_command(name) for name in COMMANDS]
    options = {name for command in commands for p in command.params for name in p.opts}
    hidden = {s.option for s in SETTINGS if s.metadata.get("is_hidden")}
    shown = {s.option for s in SETTINGS if s.name != "paths"} - hidden
    assert shown <= options
    assert hidden == {
        "--max-decompression-ratio", "--checksum", "--block-bytes", "--engine-memory-bytes",
    }  # fmt: skip
    assert not hidden & options


def test_a_variable_means_one_setting_of_all_sections():
    variables = [setting.variable for setting in SETTINGS]
    assert len(variables) == len(set(variables))
    assert "TOKMILL_CACHE_DIR" not in variables
    assert {"TOKMILL_SFT_TEMPLATE", "TOKMILL_RENDER_TEMPLATE"} <= set(variables)
    assert {"TOKMILL_SFT_WEIGHTS", "TOKMILL_TRAINING_WEIGHTS"} <= set(variables)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("give --output, a directory", "give output, a directory"),
        ("--renderer was 'a'", "renderer was 'a'"),
        (
            r"name all with --template='{title}\n{abstract}', or one with --renderer=text "
            "--fields=text=abstract",
            r'name all with template="{title}\n{abstract}", or one with renderer="text", '
            'fields={"text": "abstract"}',
        ),
        ("run with --overwrite to start again", "run with overwrite=True to start again"),
        (
            "read it again with --on-unread=skip and --overwrite",
            'read it again with on_unread="skip" and overwrite=True',
        ),
        ("set --max-tokens to 4096 or less", "set max_tokens to 4096 or less"),
        ("accept them: --max-reject-fraction=1.", "accept them: max_reject_fraction=1.0."),
        ("leave it out: --ignore-keys=label", 'leave it out: ignore_keys=["label"]'),
        ("say who: --role-names=bot=user", 'say who: role_names={"bot": "user"}'),
        ("set input.paths in a --config file", "set input.paths in a config file"),
        ("tokmill memory --models lists them", "tokmill memory --models lists them"),
        ("a file my--output.jsonl", "a file my--output.jsonl"),
        ("found 'a --workers=3', set --workers=1", "found 'a --workers=3', set workers=1"),
        ('found "it\'s --overwrite"', 'found "it\'s --overwrite"'),
        (
            "the run's --workers and the plan's --threads",
            "the run's workers and the plan's threads",
        ),
    ],
)
def test_an_option_becomes_a_keyword_argument(message, expected):
    assert in_python(message) == expected


def test_options_become_the_inside_of_a_table():
    options = "--renderer=text --fields='text=my body,title=a'"
    assert in_toml(options) == 'renderer = "text", fields = {text = "my body", title = "a"}'


def test_an_error_names_its_setting_in_each_face(tmp_path, monkeypatch):
    error = UsageError("set --max-tokens to 8 or less", "sft.packing")
    assert str(error) == "sft.packing: set --max-tokens to 8 or less"
    assert in_options(error) == "--packing: set --max-tokens to 8 or less"
    file = tmp_path / "run.toml"
    file.write_text("[sft]\npacking = 8\n")
    for words, name in (
        ((f"--config={file}",), f"{file}: sft.packing"),
        (("--config", str(file), "--packing", "8"), "--packing"),
        (("--config", str(tmp_path / "none.toml")), "--packing"),
        (("--config",), "--packing"),
    ):
        assert in_options(error, words).startswith(f"{name}: set ")
    with monkeypatch.context() as patch:
        patch.setenv("TOKMILL_SFT_PACKING", "8")
        assert in_options(error).startswith("TOKMILL_SFT_PACKING: set ")
    with pytest.raises(UsageError) as caught, keyword_errors():
        raise error
    assert str(caught.value) == "packing: set max_tokens to 8 or less"


@pytest.mark.parametrize(
    "error", [StateError("use --on-unread=skip"), UnreadInputError("use --on-unread=skip", ("a",))]
)
def test_an_error_keeps_its_kind_and_its_data(error):
    with pytest.raises(type(error)) as caught, keyword_errors():
        raise error
    assert str(caught.value) == 'use on_unread="skip"'
    assert getattr(caught.value, "files", ("a",)) == ("a",)


# As plain values


def test_the_settings_that_decide_the_bytes_leave_out_paths_speed_and_messages():
    chosen = output_settings(Config())
    assert set(chosen) == {"input", "tokenizer", "render", "output", "limits"}
    assert set(chosen["limits"]) == {"min_tokens", "max_tokens"}
    assert "paths" not in chosen["input"]
    assert "path" not in chosen["tokenizer"]
    assert "dir" not in chosen["output"]


def test_the_settings_of_a_run_that_are_not_the_defaults_build_the_same_section():
    config = build_config(
        {"model": {"name": "gpt2", "layers": 2}, "run": {"threads": 3}}, where="x"
    )
    assert plain(config)["model"]["hidden"] == 0
    found = not_default(plain(config), ("model", "training"))
    assert found == {"model": {"name": "gpt2", "layers": 2}}
    assert build_config(found, where="x").model == config.model
    assert not_default({"model": ["forged"]}, ("model",)) == {"model": ["forged"]}


def test_settings_of_one_help_text_have_one_name():
    sections = {"mix": MixSettings, "export": ExportOptions}
    others = [one for name, kind in sections.items() for one in settings_of(name, kind).values()]
    names: dict[str, set[str]] = {}
    for setting in (*SETTINGS, *others):
        names.setdefault(setting.metadata["help"], set()).add(setting.keyword)
    assert [several for several in names.values() if len(several) > 1] == []
    assert {"shard_tokens"} in names.values()
    assert {
        setting.section for setting in (*SETTINGS, *others) if setting.name == "shard_tokens"
    } == {
        "mix",
        "output",
    }
