"""Where the settings of the bill come from, and which source wins."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tokmill.api.jobs import run_config
from tokmill.cli.bill import bill_options, bill_settings_of
from tokmill.cli.main import load_command
from tokmill.settings.training import InferenceSettings, ModelSettings, TrainingSettings

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


def test_a_subject_that_does_not_exist_is_a_mistake(tokmill):
    outcome = tokmill("memory", "--help", "adaptors")
    assert outcome.code == 2
    assert "no such subject 'adaptors': expected one of settings, model, " in outcome.error


GPT2 = ("memory", "--model", "gpt2")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--model", "lama-3-8b"), "model lama-3-8b: no file and no built-in model (near: llama-3"),
        (("--model", "no/such/config.json"), "no/such/config.json: no such file; give a config"),
        (("--layers", "2"), "no model: give --model (tokmill memory --models lists names), --fam"),
        (("--family", "llama"), "family llama: a model by numbers needs --layers, --hidden"),
        ((*GPT2[1:], "--family", "llama"), "model gpt2: its family is gpt2, not llama; leave out "),
        ((*GPT2[1:], "--experts", "8"), "model gpt2: --experts 8 does not exist in gpt2"),
        ((*GPT2[1:], "--layers", "9" * 12), "model gpt2: --layers: expected a whole number from"),
        (
            (*GPT2[1:], "--micro-batch", "-3"),
            "--micro-batch: expected",
        ),
        ((*GPT2[1:], "--gpu", "Voodoo"), "gpu: 'Voodoo' is not known"),
        ((*GPT2[1:], "--deepspeed", "no.json"), "no.json: "),
        ((*GPT2[1:], "--weights", "nf4"), "weights: nf4 is for weights that are not trained, but"),
        (
            (*GPT2[1:], "--gpus", "2", "--offload", "all"),
            "offload: all needs sharding zero-1, zero-2, zero-3, fsdp or",
        ),
    ],
)
def test_a_mistake_is_one_line(tokmill, options, expected):
    outcome = tokmill("memory", *options)
    assert outcome.code == 2
    assert outcome.error.startswith(expected)
    assert outcome.out == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", "not JSON (Expecting value: line 1 column 1 (char 0))"),
        (b"[]", "expected a JSON object, found list"),
        (b'{"model_type": "unheard_of"}', "cannot count the parameters of unheard_of: "),
        (b'{"model_type": "llama", "hidden_size": "64"}', "hidden_size: expected a whole number f"),
    ],
)
def test_a_configuration_that_is_none_is_one_line(tokmill, tmp_path, text, expected):
    path = tmp_path / "config.json"
    path.write_bytes(text)
    outcome = tokmill("memory", "--model", path)
    assert outcome.code == 2
    assert outcome.error.removeprefix(f"{path}: ").startswith(expected)


def test_lengths_beyond_the_positions_are_said(tokmill):
    options = (*GPT2, "--sequence", "4096", "--context", "1025")
    expected = [
        "sequence: 4,096 tokens are more than the model's 1,024 positions",
        "context: 1,025 tokens are more than the model's 1,024 positions",
    ]
    assert json.loads(tokmill(*options, "--json").out)["notes"] == expected
    rows = tokmill(*options).out.splitlines()
    assert [row.removeprefix("note").strip() for row in rows if "positions" in row] == expected
    assert "positions" not in tokmill(*GPT2, "--sequence", "1024").out


@pytest.mark.parametrize("options", [("--json",), ("--explain",)])
def test_output_that_finds_no_room_is_one_line(options):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tokmill", *GPT2, *options], stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 5
    assert done.stderr == b"error: standard output: no space left on device\n"


def test_output_that_is_closed_is_no_error():
    words = f"{sys.executable} -m tokmill memory --model gpt2 >&-"
    done = subprocess.run(["/bin/sh", "-c", words], stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


def test_no_figure_is_lost_in_a_terminal_of_40_columns(tokmill, monkeypatch):
    def figures(width: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        out = tokmill("memory", "--model", "llama-3-8b", "--gpu", "T4").out
        assert max(map(len, out.splitlines())) <= width
        return sorted(word for word in out.split() if re.fullmatch(r"\d+\.\d+", word))

    assert figures(40) == figures(200)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (("--users", "3", "--context", "512"), ("--batch", "3", "--context", "512")),
        (("--lora",), ("--adapter", "lora")),
        (("--qlora",), ("--adapter", "qlora")),
        (("--qlora", "--adapter", "qlora"), ("--adapter", "qlora")),
        (("--gpu", "b300"), ("--gpu", "NVIDIA B300 288GB")),
    ],
)
def test_words_that_people_use_are_understood(tokmill, short, long):
    found = [json.loads(tokmill(*GPT2, "--json", *words).out) for words in (short, long)]
    gpus = [each["settings"]["training"].pop("gpu") for each in found]
    assert found[0] == found[1]
    assert [bool(gpu) for gpu in gpus] == ["--gpu" in words for words in (short, long)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--lora", "--adapter", "dora"), "--lora: leave out --adapter=dora"),
        (("--lora", "--qlora"), "--qlora: leave out --adapter=lora"),
        (("--users", "3", "--batch", "4"), "--users: leave out --batch=4"),
    ],
)
def test_words_that_contradict_each_other_are_refused(tokmill, words, message):
    outcome = tokmill(*GPT2, *words)
    assert outcome.code == 2
    assert message in outcome.error
