from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.errors import UsageError
from tokmill.settings.declare import section_type
from tokmill.settings.load import build_config, read_toml
from tokmill.settings.plain import plain
from tokmill.settings.quantity import parse_quantity
from tokmill.settings.schema import (
    Config,
    InputSettings,
    LimitSettings,
    OutputSettings,
)

SETTINGS = [
    (section, setting)
    for section, hint in get_type_hints(Config).items()
    for setting in dataclasses.fields(section_type(hint))
]


def message(values, where="run.toml") -> str:
    with pytest.raises(UsageError) as caught:
        build_config(values, where=where)
    return str(caught.value)


def test_no_values_give_the_defaults():
    assert build_config({}, where="x") == Config()


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


def test_an_unknown_section_is_named_beside_the_known_ones():
    assert message({"inputs": {}}) == (
        "run.toml: unknown section [inputs]; did you mean input? known: "
        "input, tokenizer, render, output, limits, run, sft, model, training, inference"
    )


def test_an_unknown_key_is_named_beside_the_known_ones():
    assert message({"limits": {"min_token": 1}}) == (
        "run.toml: limits.min_token: unknown key; did you mean min_tokens? "
        "known: min_tokens, max_tokens, on_error, on_unread, max_reject_fraction"
    )


def test_a_value_in_the_place_of_a_section_is_refused():
    assert message({"run": 3}) == "run.toml: [run] must be a table, found int"


@pytest.mark.parametrize(
    ("section", "key", "value", "expected"),
    [
        ("limits", "min_tokens", "3", "expected int, found str ('3')"),
        ("limits", "min_tokens", True, "expected int, found bool (True)"),
        ("limits", "min_tokens", 1.0, "expected int, found float (1.0)"),
        ("limits", "min_tokens", -1, "expected at least 0, found -1"),
        ("limits", "on_error", "stop", "expected one of skip, fail; found 'stop'"),
        ("limits", "on_error", ["skip"], "expected str, found list (['skip'])"),
        ("limits", "max_reject_fraction", False, "expected float, found bool (False)"),
        ("output", "val_fraction", 1.5, "expected between 0.0 and 1.0, found 1.5"),
        ("output", "val_fraction", float("nan"), "expected between 0.0 and 1.0, found nan"),
        ("output", "val_fraction", {"a": 1}, "expected float, found a table ({'a': 1})"),
        ("output", "part_bytes", 0, "expected at least 1, found 0"),
        ("output", "part_bytes", "0 B", "expected at least 1, found 0"),
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
            "expected one of auto, tokenizers, gigatoken, fastokens; found 'bpe'",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(section, key, value, expected):
    assert message({section: {key: value}}) == f"run.toml: {section}.{key}: {expected}"


def test_a_whole_number_is_a_fraction_too():
    value = build_config({"output": {"val_fraction": 1}}, where="x").output.val_fraction
    assert (value, type(value)) == (1.0, float)


def test_a_size_in_words_is_read_where_bytes_are_meant():
    assert build_config({"output": {"part_bytes": "8 MiB"}}, where="x").output.part_bytes == 8 << 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4096", 4096),
        (" 7 ", 7),
        ("7B", 7),
        ("8MiB", 8 << 20),
        ("8 mib", 8 << 20),
        ("1GB", 10**9),
        ("1 GiB", 1 << 30),
        ("2TB", 2 * 10**12),
        ("1TiB", 1 << 40),
        ("3kB", 3000),
        ("3 KiB", 3072),
        ("1.5kB", 1500),
        ("0", 0),
    ],
)
def test_sizes_are_read_with_units(text, expected):
    assert parse_quantity(text, "bytes", "x") == expected


@pytest.mark.parametrize("text", ["", "MiB", "1 PB", "1e6", "-1", "1,000", "1.MB", "1 k", "0x10"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(UsageError, match="--part-bytes: expected a size such as 8MiB or 1GB"):
        parse_quantity(text, "bytes", "--part-bytes")


@given(st.integers(0, 1 << 50))
def test_a_plain_number_is_its_own_size(n):
    assert parse_quantity(str(n), "bytes", "x") == n


def test_a_toml_file_is_read(tmp_path: Path):
    path = tmp_path / "run.toml"
    path.write_text('[render]\nseparator = "："\n[output]\npart_bytes = "1 MiB"\n')
    config = build_config(read_toml(path), where=str(path))
    assert (config.render.separator, config.output.part_bytes) == ("：", 1 << 20)


def test_a_missing_file_is_named(tmp_path: Path):
    path = tmp_path / "no.toml"
    with pytest.raises(UsageError) as caught:
        read_toml(path)
    assert str(caught.value) == f"{path}: no such configuration file"


def test_a_directory_is_no_configuration(tmp_path: Path):
    with pytest.raises(UsageError, match=r"cannot be read: Is a directory$"):
        read_toml(tmp_path)


@pytest.mark.parametrize("content", [b"[run", b"a = 1\na = 2\n", b"x = '\xff'\n", b"run: 1\n"])
def test_what_is_not_toml_is_refused(tmp_path: Path, content):
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"run\.toml: not valid TOML: "):
        read_toml(path)


@pytest.mark.parametrize(("section", "setting"), SETTINGS, ids=lambda x: getattr(x, "name", x))
def test_every_setting_has_help_and_says_whether_it_affects_the_output(section, setting):
    assert setting.metadata["help"].endswith(".")
    assert isinstance(setting.metadata["affects_output"], bool)


@pytest.mark.parametrize(("section", "setting"), SETTINGS, ids=lambda x: getattr(x, "name", x))
def test_every_default_passes_its_own_check_or_means_not_given(section, setting):
    expected = build_config({section: {}}, where="x")
    value = plain(expected).get(section, {}).get(setting.name, setting.default)
    if value == 0 and setting.metadata.get("minimum") == 1:  # 0 means "not given"
        with pytest.raises(UsageError, match=r"expected between 1 and .*, found 0"):
            build_config({section: {setting.name: value}}, where="x")
        return
    assert build_config({section: {setting.name: value}}, where="x") == expected


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
    [
        {"role": "speaker", "content": "utter, ance"},
        ["role=speaker", "content=utter, ance"],
    ],
)
def test_names_may_be_a_table_or_pairs_and_are_kept_in_order(given):
    config = build_config({"sft": {"fields": given}}, where="x")
    assert config.sft is not None
    assert config.sft.fields == ("content=utter, ance", "role=speaker")
    assert build_config(plain(config), where="again") == config


def test_names_of_another_type_are_refused():
    assert message({"sft": {"role_names": {"bot": 1}}}).startswith(
        "run.toml: sft.role_names.bot: expected str, found int (1)"
    )
    assert "expected a list of strings" in message({"sft": {"fields": "role=speaker"}})
    assert "expected a list of strings" in message({"sft": {"fields": ["a=b", 1]}})
