"""`tokmill mix`: what it prints, its forecast, and its options in TOML."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tokmill.cli.main import cli


@pytest.fixture
def run():
    def run(*arguments: object) -> str:
        done = CliRunner().invoke(cli, ["mix", *map(str, arguments)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


def test_wanted_and_got_are_printed(run, pretrained, tmp_path) -> None:
    printed = run(f"{pretrained.directory}=0.5", "--tokens", "5k", "-o", tmp_path / "out")
    assert "of 5,000 wanted tokens of train (100.00%)" in printed
    report = CliRunner().invoke(cli, ["report", str(tmp_path / "out")]).stdout
    assert "of 5,000 wanted tokens of train" in report
    assert "plan.json" in report
    page = tmp_path / "page.html"
    CliRunner().invoke(cli, ["report", str(tmp_path / "out"), "--html", str(page)])
    text = page.read_text(encoding="utf-8")
    assert "What each source of the mix gave to train" in text
    assert 'data-value="5000"' in text


def test_the_forecast_is_what_is_written(run, pretrained, tmp_path) -> None:
    asked = (f"{pretrained.directory}=1.5x", "--shuffle", "1", "-o", tmp_path / "out")
    forecast = json.loads(run(*asked, "--plan", "--json"))
    assert not (tmp_path / "out").exists()
    manifest = json.loads(run(*asked, "--json"))
    assert forecast["sources"] == manifest["mix"]["sources"]
    assert forecast["tokens"] == manifest["totals"]["tokens"]
    assert "while it is made" in run(*asked, "--plan")


def test_a_table_of_toml_says_the_same(run, pretrained, tmp_path) -> None:
    config = tmp_path / "mix.toml"
    config.write_text(
        f'[mix]\ninputs = ["{pretrained.directory}=2x"]\ndedup = true\nshuffle = 3\n'
        f'output = "{tmp_path / "toml"}"\n'
    )
    run("-c", config)
    run(f"{pretrained.directory}=2x", "--dedup", "--shuffle", "3", "-o", tmp_path / "options")
    sums = [
        {file["name"]: file["blake3"] for file in json.loads(path.read_text())["files"]}
        for path in (tmp_path / name / "manifest.json" for name in ("toml", "options"))
    ]
    assert sums[0] == sums[1]


def test_a_mistake_in_toml_is_named(pretrained, tmp_path: Path) -> None:
    config = tmp_path / "mix.toml"
    config.write_text('[mix]\ntoken = "60B"\n')
    done = CliRunner().invoke(cli, ["mix", str(pretrained.directory), "-c", str(config)])
    assert "did you mean tokens" in str(done.exception)
