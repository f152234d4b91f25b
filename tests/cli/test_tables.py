from __future__ import annotations

import click
import pytest
from click.testing import CliRunner
from rich.text import Text

from tokmill.cli.tables import print_tables


@click.command()
@click.option("--color/--no-color", default=None)
@click.pass_context
def show(ctx: click.Context, color: bool | None) -> None:
    """Print a styled line, and one that is too long."""
    ctx.color = color
    print_tables([Text("red [bold]", style="red"), Text("word " * 40)])


def test_text_is_plain_where_there_is_no_terminal():
    lines = CliRunner().invoke(show).output.splitlines()
    assert lines[0] == "red [bold]"
    assert max(map(len, lines)) <= 110
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("width", [40, 200])
def test_a_width_that_is_asked_for_is_kept(width: int):
    result = CliRunner().invoke(show, env={"COLUMNS": str(width)})
    longest = max(map(len, result.output.splitlines()))
    assert width - 5 <= longest <= width


@pytest.mark.parametrize("width", [0, 1, 39])
def test_a_width_that_holds_no_figures_is_taken_as_40(width: int):
    result = CliRunner().invoke(show, env={"COLUMNS": str(width)})
    assert result.output == CliRunner().invoke(show, env={"COLUMNS": "40"}).output != ""


def test_colour_that_is_refused_is_not_printed_even_if_forced():
    result = CliRunner().invoke(show, ["--no-color"], env={"FORCE_COLOR": "1"}, color=True)
    assert "\x1b" not in result.output
    assert "\x1b" in CliRunner().invoke(show, env={"FORCE_COLOR": "1"}, color=True).output
