"""Amounts with units, in settings from every source."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tokmill.cli.bill_options import bill_options, settled
from tokmill.errors import UsageError
from tokmill.settings.load import argument_values, build_config, merged
from tokmill.settings.quantity import UNITS, parse_quantity
from tokmill.settings.training import TrainingSettings


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("32k", "context", 32_768),
        ("128K", "context", 131_072),
        ("1M", "context", 1 << 20),
        ("1.5k", "context", 1536),
        ("4096", "context", 4096),
        ("4096.0", "context", 4096),
        ("300B", "count", 300 * 10**9),
        ("1.4 T", "count", 1_400_000_000_000),
        ("7.5b", "count", 7_500_000_000),
        ("32k", "count", 32_000),
        ("0.000000001T", "count", 1000),
        ("512GiB", "bytes", 512 << 30),
        ("100GB", "bytes", 10**11),
        ("900GB/s", "bytes/s", 900 * 10**9),
        ("25 gb", "bytes/s", 25 * 10**9),
    ],
)
def test_k_is_1024_of_a_context_and_1000_of_a_count(text, unit, expected):
    assert parse_quantity(text, unit, "x") == expected


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("32KB", "context", "a number of tokens such as 4096 or 32k (32,768)"),
        ("300 tokens", "count", "a number such as 7.5B or 300M"),
        ("1e9", "count", "a number such as 7.5B or 300M"),
        ("512G", "bytes", "a size such as 8MiB or 1GB"),
        ("1.5", "bytes", "a size such as 8MiB or 1GB"),
        ("1.5", "count", "a number such as 7.5B or 300M"),
        ("900GB/h", "bytes/s", "bytes per second such as 900GB/s"),
        ("-1B", "count", "a number such as 7.5B"),
        ("", "count", "a number such as 7.5B"),
        ("9" * 400 + "B", "count", "a number such as 7.5B"),
    ],
)
def test_what_is_no_amount_is_refused_with_an_example(text, unit, expected):
    with pytest.raises(UsageError) as caught:
        parse_quantity(text, unit, "--tokens")
    assert str(caught.value).startswith(f"--tokens: expected {expected}")
    assert str(caught.value).endswith(f"found {text!r}")


@given(st.integers(0, 10**30 - 1), st.sampled_from(sorted(UNITS)))
def test_a_plain_number_is_itself_in_every_unit(n, unit):
    assert parse_quantity(str(n), unit, "x") == n


@given(st.integers(0, 10**9), st.integers(0, 10**9 - 1))
def test_no_digit_of_a_decimal_number_is_lost(whole, decimals):
    text = f"{whole}.{decimals:09d}B"
    assert parse_quantity(text, "count", "x") == whole * 10**9 + decimals


def sequence_of(*arguments: str, **variables: str) -> int:
    @click.command()
    @bill_options
    def show(config_file: Path | None, **options: object) -> None:
        click.echo(settled(config_file, options).training.sequence)

    done = CliRunner().invoke(show, arguments, env=variables)
    assert done.exit_code == 0, done.output
    return int(done.output)


def test_options_variables_files_and_arguments_take_the_same_amounts(tmp_path: Path):
    file = tmp_path / "run.toml"
    file.write_text('[training]\nsequence = "32k"\n')
    assert sequence_of("--sequence", "32k") == 32_768
    assert sequence_of("--sequence", "32768") == 32_768
    assert sequence_of(TOKMILL_SEQUENCE="32k") == 32_768
    assert sequence_of("-c", str(file)) == 32_768
    values = argument_values(["training"], {"sequence": "32k"})
    assert build_config(values, where="x").training == TrainingSettings(sequence=32_768)


def test_a_wrong_amount_is_named_by_its_option():
    @click.command()
    @bill_options
    def show(**options: object) -> None: ...

    done = CliRunner().invoke(show, ["--sequence", "32 pages"])
    assert done.exit_code == 2
    assert "'--sequence': expected a number of tokens such as 4096 or 32k (32,768)" in " ".join(
        done.output.split()
    )


def test_a_limit_is_checked_after_the_unit():
    with pytest.raises(UsageError, match="found 1099511627776"):
        build_config({"training": {"sequence": "1048576M"}}, where="x")


def test_units_are_explained_in_the_help():
    for setting in dataclasses.fields(TrainingSettings):
        unit = setting.metadata.get("unit")
        assert UNITS[unit].help in setting.metadata["help"] if unit else True


def test_a_second_name_is_the_same_setting_in_every_source(tmp_path: Path):
    lists = TrainingSettings(loading="lists")
    assert build_config({"training": {"strategy": "lists"}}, where="x").training == lists
    values = argument_values(["training"], {"strategy": "lists"})
    assert values == {"training": {"loading": "lists"}}
    later = merged({"training": {"strategy": "read"}}, {"training": {"loading": "lists"}})
    assert later == {"training": {"loading": "lists"}}


def test_both_names_at_once_are_refused():
    both = {"strategy": "lists", "loading": "read"}
    for call in (
        lambda: build_config({"training": both}, where="x"),
        lambda: argument_values(["training"], both),
    ):
        with pytest.raises(UsageError, match="the same setting as loading: give one of them"):
            call()
