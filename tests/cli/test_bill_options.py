"""Where the settings of the bill come from, and which source wins."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tokmill.api.jobs import run_config
from tokmill.cli.bill import bill_options, settled
from tokmill.settings.inference import InferenceSettings
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

BASE: dict[str, dict[str, Any]] = {
    "model": {"family": "llama", "layers": 8, "hidden": 512},
    "training": {"micro_batch": 2, "sequence": 64, "gpu": "T4"},
}


@click.command()
@bill_options
def show(config_file: Path | None, **options: Any) -> None:
    """Print the settings that the command line gives over those of a dataset."""
    found = settled(config_file, options, BASE)
    click.echo(json.dumps(dataclasses.asdict(found)))


def given(*arguments: str | Path, **variables: str) -> dict[str, Any]:
    result = CliRunner().invoke(show, [str(argument) for argument in arguments], env=variables)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.output)
    return found


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text("[training]\nmicro_batch = 3\nsequence = 128\n[inference]\nbatch = 5\n")
    return path


@pytest.fixture
def deepspeed(tmp_path: Path) -> Path:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"train_micro_batch_size_per_gpu": 4, "frobnication": 1}))
    return path


def test_without_options_the_settings_are_those_of_the_dataset():
    found = given()
    assert found["model"] == dataclasses.asdict(ModelSettings(**BASE["model"]))
    assert found["training"] == dataclasses.asdict(TrainingSettings(**BASE["training"]))
    assert found["inference"] == dataclasses.asdict(InferenceSettings())


def test_an_option_wins_over_a_variable_a_settings_file_the_config_and_the_dataset(
    config_file, deepspeed
):
    def micro_batch(*arguments: str | Path, **variables: str) -> int:
        size: int = given(*arguments, **variables)["training"]["micro_batch"]
        return size

    files = ("-c", config_file, "--deepspeed", deepspeed)
    assert micro_batch() == 2
    assert micro_batch("-c", config_file) == 3
    assert micro_batch(*files) == 4
    assert micro_batch(*files, TOKMILL_MICRO_BATCH="5") == 5
    assert micro_batch(*files, "--micro-batch", "6", TOKMILL_MICRO_BATCH="5") == 6


def test_another_model_keeps_no_number_of_the_one_before():
    assert given("--model", "gpt2")["model"] == dataclasses.asdict(ModelSettings(name="gpt2"))
    assert given("--layers", "9")["model"]["hidden"] == 512
    other = given("--model", "gpt2", "--layers", "9")["model"]
    assert (other["layers"], other["hidden"]) == (9, 0)


def test_a_named_model_takes_the_place_of_the_numbers_of_a_run(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('[model]\nfamily = "llama"\nlayers = 8\n')
    config = run_config("pretrain", (), path, {"model": "gpt2", "gpu": "T4"})
    assert config.model == ModelSettings(name="gpt2")
    assert config.training == TrainingSettings(gpu="T4")


@pytest.mark.parametrize("command", ["pretrain", "sft", "plan", "report", "memory"])
def test_help_groups_options_below_headings_and_fits_80_columns(tokmill, command):
    out = tokmill(command, "--help").out
    headings = re.findall(r"^(\S.*):$", out, re.MULTILINE)
    assert len(headings) == len(set(headings)) >= 6
    of_runs = ["Input", "Tokenizer", "Output", "Limits and errors", "Engine and workers", "Bill"]
    of_bills = ["Settings files", "Model", "Machines", "Adapters", "Inference", "Output"]
    expected = of_bills if command in ("report", "memory") else of_runs
    assert [heading for heading in headings if heading in expected] == expected
    assert max(len(line) for line in out.partition("Examples:")[2].splitlines()[8:]) <= 80


def test_long_choices_are_in_the_text_of_the_help(tokmill):
    out = tokmill("memory", "--help").out
    assert re.search(r"^  --family TEXT +\S", out, re.MULTILINE)
    assert "--gpu TEXT" in out.partition("Machines:")[2].partition("Precision")[0]
    assert "--deepspeed" in out.partition("Settings files:")[2].partition("Model:")[0]
