"""Settings from plain values, keyword arguments, variables and a file: one schema, one check."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokmill.errors import UsageError
from tokmill.settings.load import (
    MOST_BYTES,
    build_config,
    config_from_arguments,
    read_toml,
    variable_values,
)
from tokmill.settings.names import every_setting, find_setting, plain
from tokmill.settings.schema import (
    PRETRAIN_SECTIONS,
    Config,
    InputSettings,
    LimitSettings,
    OutputSettings,
    TokenizerSettings,
)


def message(values, where="run.toml") -> str:
    with pytest.raises(UsageError) as caught:
        build_config(values, where=where)
    return str(caught.value)


def test_values_of_sections_are_taken_and_the_others_stay():
    config = build_config(
        {
            "input": {"paths": ["a.jsonl", "b.jsonl"], "csv_delimiter": ";"},
            "output": {"part_bytes": 4096, "val_fraction": 0.25},
            "limits": {"on_error": "fail"},
        },
        where="x",
    )
    assert config.input == InputSettings(paths=("a.jsonl", "b.jsonl"), csv_delimiter=";")
    assert config.output == OutputSettings(part_bytes=4096, val_fraction=0.25)
    assert config.limits == LimitSettings(on_error="fail")
    assert config.run == Config().run


def test_a_value_in_the_place_of_a_section_is_refused():
    assert message({"run": 3}) == "run.toml: [run] must be a table, found int"


@pytest.mark.parametrize(
    ("section", "key", "value", "expected"),
    [
        ("limits", "min_tokens", "3", "expected int, found str ('3')"),
        ("limits", "min_tokens", True, "expected int, found bool (True)"),
        ("limits", "min_tokens", -1, "expected at least 0, found -1"),
        ("limits", "on_error", "stop", "expected one of skip, fail; found 'stop'"),
        ("output", "val_fraction", float("nan"), "expected between 0.0 and 1.0, found nan"),
        ("output", "val_fraction", {"a": 1}, "expected float, found a table ({'a': 1})"),
        ("output", "part_bytes", "many", "expected a size such as 8MiB or 1GB, found 'many'"),
        (
            "input",
            "max_record_bytes",
            "2GiB",
            "expected between 1 and 1073741824, found 2147483648",
        ),
        ("input", "paths", "a.jsonl", "expected a list of strings, found str"),
        ("input", "paths", ["a", 3], "expected a list of strings, found ['a', 3]"),
        (
            "run",
            "engine",
            "bpe",
            "expected one of auto, reference, gigatoken, fastokens, nanotoken; found 'bpe'",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(section, key, value, expected):
    assert message({section: {key: value}}) == f"run.toml: {section}.{key}: {expected}"


def test_a_directory_is_no_configuration(tmp_path):
    with pytest.raises(UsageError, match=r"cannot be read: Is a directory$"):
        read_toml(tmp_path)


@pytest.mark.parametrize("content", [b"[run", b"a = 1\na = 2\n", b"x = '\xff'\n", b"run: 1\n"])
def test_what_is_not_toml_is_refused(tmp_path, content):
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"run\.toml: not valid TOML: "):
        read_toml(path)


@pytest.mark.parametrize("setting", every_setting(), ids=lambda setting: setting.key)
def test_every_setting_has_help_and_a_default_that_passes_or_means_not_given(setting):
    assert setting.metadata["help"].endswith(".")
    assert isinstance(setting.metadata["affects_output"], bool)
    expected = build_config({setting.section: {}})
    values = {setting.section: {setting.name: setting.default}}
    if setting.default == 0 and setting.metadata.get("minimum") == 1:  # 0 means "not given"
        with pytest.raises(UsageError, match=r"expected between 1 and .*, found 0"):
            build_config(values)
    else:
        assert build_config(values) == expected


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"ouput": {}}, "f: unknown section [ouput]; did you mean output? known: input, "),
        ({"workers": 2}, "f: unknown section [workers]; it belongs to [run]; "),
        (
            {"output": {"val_fracton": 1}},
            "f: output.val_fracton: unknown key; did you mean val_fraction? known: dir, ",
        ),
        (
            {"output": {"max_tokens": 1}},
            "f: output.max_tokens: unknown key; it belongs to [limits]; ",
        ),
    ],
)
def test_a_misspelt_or_misplaced_key_is_answered_with_the_one_that_was_meant(values, said):
    with pytest.raises(UsageError) as caught:
        build_config(values, where="f")
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    "given",
    [{"role": "speaker", "content": "utter, ance"}, ["role=speaker", "content=utter, ance"]],
)
def test_names_may_be_a_table_or_pairs_and_are_kept_in_order(given):
    config = build_config({"sft": {"fields": given}}, where="x")
    assert config.sft is not None
    assert config.sft.fields == ("content=utter, ance", "role=speaker")
    assert build_config(plain(config), where="again") == config


def test_names_of_another_type_are_refused():
    assert message({"sft": {"role_names": {"bot": 1}}}).startswith(
        "run.toml: sft.role_names: bot: expected str, found int (1)"
    )
    assert "expected a list of strings" in message({"sft": {"fields": "role=speaker"}})
    assert "expected a list of strings" in message({"sft": {"fields": ["a=b", 1]}})


def test_arguments_have_the_names_of_the_options():
    arguments = {"paths": ["a.jsonl"], "tokenizer": "gpt2/", "output": "out", "val_fraction": 0.5}
    assert config_from_arguments(PRETRAIN_SECTIONS, arguments) == Config(
        input=InputSettings(paths=("a.jsonl",)),
        tokenizer=TokenizerSettings(path="gpt2/"),
        output=OutputSettings(dir="out", val_fraction=0.5),
    )


def test_a_path_may_be_given_where_a_setting_is_text():
    arguments = {"paths": [Path("a")], "tokenizer": Path("t"), "output": Path("o")}
    config = config_from_arguments(PRETRAIN_SECTIONS, arguments)
    assert (config.input.paths, config.tokenizer.path, config.output.dir) == (("a",), "t", "o")


def test_a_configuration_without_an_end_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"^/dev/zero: expected a regular file, found"):
        read_toml(Path("/dev/zero"))
    (tmp_path / "large.toml").write_bytes(b" " * (MOST_BYTES + 1))
    with pytest.raises(UsageError, match=r"large\.toml: expected settings in TOML, found more"):
        read_toml(tmp_path / "large.toml")


def test_a_configuration_that_is_nested_too_deeply_is_one_line(tmp_path):
    (tmp_path / "deep.toml").write_text("a = " + "[" * 100_000)
    with pytest.raises(UsageError, match=r"not valid TOML"):
        read_toml(tmp_path / "deep.toml")


@pytest.mark.parametrize(
    ("variable", "text", "key", "value"),
    [
        ("TOKMILL_WORKERS", "4", "run.workers", 4),
        ("TOKMILL_VAL_FRACTION", "0.25", "output.val_fraction", 0.25),
        ("TOKMILL_PART_BYTES", "4MiB", "output.part_bytes", "4MiB"),
        ("TOKMILL_PACKED_ROWS", "yes", "sft.packed_rows", True),
        ("TOKMILL_PACKED_ROWS", "False", "sft.packed_rows", False),
        ("TOKMILL_ROLES", "assistant, tool", "sft.roles", ["assistant", "tool"]),
        ("TOKMILL_TEXT_SEPARATOR", r"\n\n\\", "input.text_separator", "\n\n\\"),
        ("TOKMILL_EOS_TOKEN", r"\n", "tokenizer.eos_token", r"\n"),
        ("TOKMILL_TOKENIZER", "gpt2/", "tokenizer.path", "gpt2/"),
        ("TOKMILL_SFT_TEMPLATE", "chatml", "sft.template", "chatml"),
        ("TOKMILL_SOURCE", 'paths = ["a"]', "input.sources", [{"paths": ["a"]}]),
    ],
)
def test_a_variable_is_read_by_the_type_of_its_setting(monkeypatch, variable, text, key, value):
    monkeypatch.setenv(variable, text)
    section, name = key.split(".")
    assert variable_values([find_setting(key)]) == {section: {name: value}}


def test_an_empty_variable_and_one_of_another_setting_say_nothing(monkeypatch):
    monkeypatch.setenv("TOKMILL_WORKERS", "")
    monkeypatch.setenv("TOKMILL_THREADS", "2")
    assert variable_values([find_setting("run.workers")]) == {}


@pytest.mark.parametrize(
    ("fields", "role", "keys"),
    [
        ({"text": "body"}, "text", ("body",)),
        ({"text": ["body", "abstract"]}, "text", ("body", "abstract")),
        (["text=body", "text=abstract"], "text", ("body", "abstract")),
        (["text=body"], "title", ("title",)),
    ],
)
def test_the_keys_of_a_record_are_named_by_role(fields, role, keys):
    assert build_config({"render": {"fields": fields}}).render.keys_of(role) == keys


@pytest.mark.parametrize(
    ("renderer", "expected"),
    [
        ("encyclopedia", ("encyclopedia", ":", "。")),
        ("encyclopedia:separator=：", ("encyclopedia", "：", "。")),
        ("encyclopedia:separator=, ,terminator=", ("encyclopedia", ", ", "")),
        ("package.module:function", ("package.module:function", ":", "。")),
    ],
)
def test_a_renderer_may_have_arguments(renderer, expected):
    render = build_config({"render": {"renderer": renderer}}).render
    assert (render.renderer_name, render.separator, render.terminator) == expected


@pytest.mark.parametrize(
    "renderer",
    ["text:separator=x", "encyclopedia:end=x", "article:unclear=article", "sections:unclear=text"],
)
def test_an_argument_that_a_renderer_lacks_is_refused(renderer):
    assert message({"render": {"renderer": renderer}}).startswith(
        "run.toml: render.renderer: expected encyclopedia:separator=:,terminator=。, sections:"
    )
