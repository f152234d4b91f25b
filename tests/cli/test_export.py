"""`tokmill export`: what it prints, and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tokmill.cli.main import cli
from tokmill.errors import TokmillError


@pytest.fixture
def exporting(single, tmp_path):
    """Run `tokmill export` on a dataset; return its result."""

    def call(*options: str):
        arguments = ["export", str(single.directory), "--output", str(tmp_path / "e"), *options]
        return CliRunner().invoke(cli, arguments)

    return call


def test_an_export_says_what_was_written_and_how_to_use_it(exporting, tmp_path):
    result = exporting("--to", "nanogpt", "--check")
    assert result.exit_code == 0
    first, *_, last = result.stdout.splitlines()
    assert first.startswith(f"{tmp_path / 'e'}: ")
    assert "2 files linked to the dataset" in first
    assert last.startswith("linked files are read-only")
    assert "gets PermissionError" in last
    assert "mode='r'" in last
    assert "73,859 tokens" in result.output


def test_the_copies_of_an_export_open_as_scripts_open_them(exporting, tmp_path):
    result = exporting("--to", "nanogpt", "--copy")
    assert "read-only" not in result.output
    assert len(np.memmap(tmp_path / "e" / "train.bin", np.uint16)) > 0
    assert (tmp_path / "e" / "train.bin").stat().st_mode & 0o200


def test_the_result_of_an_export_can_be_read_by_a_program(exporting, tmp_path):
    found = json.loads(exporting("--to", "nanogpt", "--json").output)
    assert found["output"] == str(tmp_path / "e")
    assert {file["how"] for file in found["files"]} >= {"link"}
    assert found["usage"]


def test_an_option_without_effect_is_refused(exporting, monkeypatch):
    monkeypatch.setattr("tokmill.trainers.nanogpt.NanoGpt.options", frozenset())
    from dataclasses import fields

    from tokmill.trainers.options import ExportOptions

    general = ("copy", "drop_weights")
    others = [field.name for field in fields(ExportOptions) if field.name not in general]
    for name in others:
        if isinstance(ExportOptions.__dataclass_fields__[name].default, bool):
            result = exporting("--to", "nanogpt", f"--{name.replace('_', '-')}")
            assert "has no effect on an export to nanogpt" in str(result.exception)


# Import


@pytest.fixture
def run(tokenizer_dir: Path, tmp_path: Path):
    """Run `tokmill import` on a stream of nanoGPT; return its result."""
    np.array([5, 6, 0, 7, 0, 8], "<u2").tofile(tmp_path / "train.bin")

    def call(*options: str):
        arguments = ["import", str(tmp_path), "--from", "nanogpt", "-t", str(tokenizer_dir)]
        return CliRunner().invoke(cli, [*arguments, "-o", str(tmp_path / "out"), *options])

    return call


def test_an_import_says_what_it_made_and_what_was_lost(run, tmp_path):
    result = run()
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 1
    assert result.stdout.startswith(
        f"{tmp_path / 'out'}: 3 documents, 7 tokens as uint16 in 1 shard, "
    )
    assert "boundaries are those of eos" in result.stderr
    assert "eos was added to 1 document" in result.stderr


def test_the_result_can_be_read_by_a_program(run):
    found = json.loads(run("--json").stdout)
    assert found["totals"]["documents"] == 3
    assert len(found["notes"]) == 2


def test_a_quiet_import_prints_nothing(run):
    result = run("--quiet")
    assert (result.exit_code, result.output) == (0, "")


def test_the_dataset_is_one_for_the_other_commands(run, tmp_path):
    run()
    out = str(tmp_path / "out")
    report = CliRunner().invoke(cli, ["report", out]).output
    assert "text bytes per token" not in report  # its text is unknown
    for arguments in (["verify", out], ["inspect", out, "--sample", "1"], ["report", out]):
        done = CliRunner().invoke(cli, arguments)
        assert done.exit_code == 0, done.output
    exported = ["export", out, "--to", "megatron", "-o", str(tmp_path / "m")]
    assert CliRunner().invoke(cli, exported).exit_code == 0


def test_an_imported_dataset_is_replaced_when_asked(run):
    assert run().exit_code == run().exit_code == run("--overwrite").exit_code == 0
    assert "run with --overwrite" in str(run("--add-eos").exception)


def test_no_file_of_the_source_is_changed_by_an_error(run, tmp_path):
    wrong = b"\xff\xff\0\0"
    (tmp_path / "train.bin").write_bytes(wrong)
    assert isinstance(run().exception, TokmillError)
    assert (tmp_path / "train.bin").read_bytes() == wrong
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_terminal_gets_a_bar_and_a_program_none(run, monkeypatch):
    drawn: list[int] = []

    class Drawn:
        def start(self, total_bytes: int) -> None:
            drawn.append(total_bytes)

        def update(self, progress) -> None:
            assert "100%" in progress.line(80)
            drawn.append(progress.input_bytes)

        def stop(self) -> None:
            drawn.append(-1)

    monkeypatch.setattr("tokmill.api.progress.make_bar", Drawn)
    assert run().exit_code == 0
    assert drawn == [12, 12, 12, -1]
    assert run("--overwrite", "--json").exit_code == 0
    assert len(drawn) == 4
