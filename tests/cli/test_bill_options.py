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
from tokmill.cli.bill import bill_options, bill_settings_of
from tokmill.cli.main import load_command
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
    found = bill_settings_of(config_file, options, BASE)
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


def helped(tokmill: Any, command: str, *subject: str) -> str:
    outcome = tokmill(command, "--help", *subject)
    assert (outcome.code, outcome.err) == (0, "")
    out: str = outcome.out
    return out


def listed(out: str) -> list[str]:
    """Return the options that a help explains."""
    return re.findall(r"^  (?:-\w, )?--([a-z-]+)", out, re.MULTILINE)


@pytest.mark.parametrize("command", ["pretrain", "sft", "plan", "report", "memory"])
def test_help_groups_options_below_headings_and_fits_80_columns(tokmill, command):
    is_bill = command in ("report", "memory")
    out = helped(tokmill, command, *(["all"] if is_bill else []))
    headings = re.findall(r"^(\S.*):$", out, re.MULTILINE)
    assert len(headings) == len(set(headings)) >= 6
    of_runs = ["Input", "Tokenizer", "Output", "Limits and errors", "Engine and workers", "Bill"]
    of_bills = ["Settings files", "Model", "Machines", "Adapters", "Inference", "Output"]
    expected = of_bills if is_bill else of_runs
    assert [heading for heading in headings if heading in expected] == expected
    assert max(len(line) for line in out.partition("Examples:")[2].splitlines()[8:]) <= 80


def test_the_help_of_the_bill_begins_with_the_options_that_most_need(tokmill):
    out = helped(tokmill, "memory")
    assert listed(out.partition("Options:")[2].partition("More options")[0]) == [
        "model", "gpu", "gpus", "precision", "optimizer", "micro-batch", "sequence",
        "checkpointing", "sharding", "adapter", "tokens", "context", "only", "explain", "json",
        "states", "compare", "help",
    ]  # fmt: skip
    assert len(out.splitlines()) <= 70
    assert max(map(len, out.splitlines())) <= 80
    assert "Bytes per parameter for weight" not in out, "it is in --help precision"


@pytest.mark.parametrize("command", ["report", "memory"])
def test_every_option_of_the_bill_is_explained_below_one_subject(tokmill, command):
    first = helped(tokmill, command)
    subjects = re.findall(r"^  (?:--help )?(\w+)  ", first.partition("More options")[2], re.M)
    assert subjects[-1] == "all"
    assert {"model", "sharding", "host", "inference"} < set(subjects)
    by_subject = [listed(helped(tokmill, command, subject)) for subject in subjects[:-1]]
    options = [option for group in by_subject for option in group]
    assert len(options) == len(set(options))
    every = listed(helped(tokmill, command, "all"))
    assert set(every) == {*options, *listed(first)}
    known = {name for param in load_command(command).params for name in param.opts}
    assert {f"--{option}" for option in every} - {"--help"} == {
        name for name in known if name.startswith("--")
    }


def test_a_subject_shows_its_options_alone(tokmill):
    out = helped(tokmill, "memory", "adapters")
    assert out.startswith("Usage: tokmill memory [OPTIONS]\n\nAdapters:\n  --adapter [none|lora")
    assert "Examples:" not in out
    assert listed(out) == ["adapter", "adapter-rank", "adapter-targets", "prepare-kbit"]
    assert tokmill("memory", "-h").out == helped(tokmill, "memory")
    assert tokmill("memory", "-h", "adapters").out == out


def test_a_subject_that_does_not_exist_is_a_mistake(tokmill):
    outcome = tokmill("memory", "--help", "adaptors")
    assert outcome.code == 2
    assert "no such subject 'adaptors': expected one of settings, model, " in outcome.error


def test_long_choices_are_in_the_text_of_the_help(tokmill):
    out = helped(tokmill, "memory", "all")
    assert re.search(r"^  --family TEXT +\S", out, re.MULTILINE)
    assert "--gpu TEXT" in out.partition("Machines:")[2].partition("Precision")[0]
    assert "--deepspeed" in out.partition("Settings files:")[2].partition("Model:")[0]
