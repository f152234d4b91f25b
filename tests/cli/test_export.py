"""`tokmill export`: what it prints, and its errors."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from tokmill.cli.main import cli


@pytest.fixture
def run(single, tmp_path):
    """Run `tokmill export` on a dataset; return its result."""

    def call(*options: str):
        arguments = ["export", str(single.directory), "--output", str(tmp_path / "e"), *options]
        return CliRunner().invoke(cli, arguments)

    return call


def test_an_export_says_what_was_written_and_how_to_use_it(run, tmp_path):
    result = run("--to", "nanogpt", "--check")
    assert result.exit_code == 0
    first, second, *_ = result.output.splitlines()
    assert first.startswith(f"{tmp_path / 'e'}: ")
    assert "2 files linked to the dataset" in first
    assert "PermissionError" in second
    assert "--copy makes copies" in second
    assert "73,859 tokens" in result.output


def test_the_result_can_be_read_by_a_program(run, tmp_path):
    found = json.loads(run("--to", "nanogpt", "--json").output)
    assert found["output"] == str(tmp_path / "e")
    assert {file["how"] for file in found["files"]} >= {"link"}
    assert found["usage"]


def test_copies_are_said_to_take_disk_space(run):
    result = run("--to", "nanogpt", "--copy")
    assert "linked" not in result.output.splitlines()[0]


def test_an_option_without_effect_is_refused(run, monkeypatch):
    monkeypatch.setattr("tokmill.trainers.nanogpt.NanoGpt.options", frozenset())
    from dataclasses import fields

    from tokmill.trainers.options import ExportOptions

    general = ("copy", "drop_weights")
    others = [field.name for field in fields(ExportOptions) if field.name not in general]
    for name in others:
        if isinstance(ExportOptions.__dataclass_fields__[name].default, bool):
            result = run("--to", "nanogpt", f"--{name.replace('_', '-')}")
            assert "has no effect on an export to nanogpt" in str(result.exception)
