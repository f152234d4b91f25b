"""Settings from keyword arguments, over a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokmill.errors import UsageError
from tokmill.settings.load import MOST_BYTES, config_from_arguments, read_toml
from tokmill.settings.schema import (
    PRETRAIN_SECTIONS,
    SFT_SECTIONS,
    Config,
    InputSettings,
    OutputSettings,
    TokenizerSettings,
)
from tokmill.settings.sft import SftSettings


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


def test_none_means_that_an_argument_was_not_given():
    assert config_from_arguments(PRETRAIN_SECTIONS, {"max_tokens": None}) == Config()


def test_an_argument_wins_over_the_file_and_the_file_over_the_default(tmp_path: Path):
    path = tmp_path / "run.toml"
    path.write_text("[limits]\nmin_tokens = 1\nmax_tokens = 2\n")
    config = config_from_arguments(PRETRAIN_SECTIONS, {"max_tokens": 9}, path)
    assert (config.limits.min_tokens, config.limits.max_tokens) == (1, 9)


def test_mappings_may_be_dictionaries():
    config = config_from_arguments(SFT_SECTIONS, {"role_names": {"bot": "assistant"}})
    assert config.sft == SftSettings(role_names=("bot=assistant",))


def test_a_name_that_two_sections_have_means_the_setting_of_the_first():
    sections = (*SFT_SECTIONS, "training")
    assert config_from_arguments(sections, {"weights": "file"}).sft == SftSettings(weights="file")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            {"val_fractoin": 0.1},
            "val_fractoin: no such setting: did you mean val_fraction? ",
        ),
        ({"val_fraction": 3}, "val_fraction: expected between 0.0 and 1.0, found 3.0"),
        ({"workers": "two"}, "workers: expected int, found str ('two')"),
        ({"template": "x", "turns": "all"}, "turns: no such setting: "),
    ],
)
def test_a_wrong_argument_is_named_as_it_was_written(arguments: dict[str, object], expected: str):
    with pytest.raises(UsageError) as caught:
        config_from_arguments(PRETRAIN_SECTIONS, arguments)
    assert str(caught.value).startswith(expected)


def test_a_configuration_without_an_end_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"^/dev/zero: expected a regular file, found"):
        read_toml(Path("/dev/zero"))
    (tmp_path / "large.toml").write_bytes(b" " * (MOST_BYTES + 1))
    with pytest.raises(UsageError, match=r"large\.toml: expected settings in TOML, found more"):
        read_toml(tmp_path / "large.toml")


def test_a_configuration_that_is_nested_too_deeply_is_one_line(tmp_path: Path):
    (tmp_path / "deep.toml").write_text("a = " + "[" * 100_000)
    with pytest.raises(UsageError, match=r"not valid TOML"):
        read_toml(tmp_path / "deep.toml")


def test_a_choice_that_means_not_given_is_not_offered():
    with pytest.raises(UsageError, match=r"expected one of plain, gpt2, "):
        config_from_arguments(["model"], {"family": "x"})
