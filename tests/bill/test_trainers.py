"""What trainers set is counted, and named in the row "training"; what is given stays."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

import tokmill
from tokmill.bill.trainers import TRAINERS, as_trainer, set_by_trainer
from tokmill.cli.main import cli
from tokmill.settings.training import TrainingSettings

QLORA = "--model qwen3-8b --sequence 4k --qlora"


def screen(command: str) -> str:
    """Return what `tokmill memory` prints, on one line."""
    result = CliRunner().invoke(cli, ["memory", *command.split()])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


@pytest.mark.parametrize("trainer", list(TRAINERS))
def test_each_setting_of_a_trainer_is_named(trainer: str) -> None:
    adapter = "" if trainer in ("megatron", "deepspeed") else "--qlora"
    shown = screen(f"--model qwen3-8b --trainer {trainer} {adapter}")
    how = TrainingSettings(trainer=trainer, adapter="qlora" if adapter else "none")
    told = shown.partition(f"as {trainer} sets: ")[2]
    names = [f"--{name.replace('_', '-')}" for name in set_by_trainer(how, ())]
    assert names
    for name in names:
        assert name.replace("--prepare", "--no-prepare") in told


@pytest.mark.parametrize("trainer", list(TRAINERS))
@pytest.mark.parametrize("adapter", ["none", "lora", "qlora"])
@pytest.mark.parametrize("gpus", [1, 8])
def test_what_a_trainer_sets_can_be_billed(trainer: str, adapter: str, gpus: int) -> None:
    if trainer == "megatron" and adapter == "qlora":
        return
    bill = tokmill.bill.training(
        "qwen2.5-0.5b", trainer=trainer, adapter=adapter, gpus=gpus, sequence=512
    )
    assert 0 < bill.peak.n_bytes <= bill.peak.high_bytes


def test_what_is_given_wins_over_the_trainer() -> None:
    shown = screen(f"{QLORA} --trainer trl --checkpointing none")
    assert "as trl sets: --precision amp" in shown
    assert "--checkpointing" not in shown.partition("as trl sets")[2]


def test_qlora_recomputes_activations_unless_it_is_told_not_to() -> None:
    usual, without = screen(QLORA), screen(f"{QLORA} --checkpointing none")
    assert "as most trainers set: --checkpointing full" in usual
    assert "as most trainers set" not in without

    def gib(text: str) -> float:
        return float(text.partition("GPU memory ")[2].split()[0])

    assert gib(usual) < 0.6 * gib(without)
    assert gib(screen(f"{QLORA} --trainer trl")) < 24


def test_a_setting_that_no_trainer_sets_is_as_before() -> None:
    plain = TrainingSettings()
    assert as_trainer(plain, ()) == plain
    assert as_trainer(TrainingSettings(adapter="lora"), ()).checkpointing == "none"


def test_trainers_are_compared_each_with_its_defaults() -> None:
    how = {"adapter": "qlora", "sequence": 4096}
    found = tokmill.bill.compare("qwen3-8b", axes={"trainer": ["trl", "unsloth"]}, **how)
    trl, unsloth = (each.n_bytes for each in found.alternatives)
    assert unsloth < 0.9 * trl


@pytest.mark.parametrize(
    ("trainer", "how", "name", "value"),
    [
        ("trl", {}, "loss", "fused"),
        ("trl", {"adapter": "lora"}, "weights", "fp32"),
        ("trl", {"adapter": "qlora"}, "weights", "auto"),
        ("trl", {"adapter": "lora", "weights": "int8"}, "weights", "int8"),
        ("torchtune", {}, "optimizer", "adamw-8bit"),
        ("torchtune", {}, "optimizer_step", "backward"),
        ("torchtune", {"gpus": 8}, "optimizer", "adamw"),
        ("torchtune", {"adapter": "lora"}, "optimizer", "adamw"),
        ("deepspeed", {}, "optimizer_step", "fused"),
        ("megatron", {}, "checkpointing", "selective"),
    ],
)
def test_a_trainer_sets_what_its_source_says(
    trainer: str, how: dict[str, Any], name: str, value: str
) -> None:
    found = as_trainer(TrainingSettings(trainer=trainer, **how), tuple(how))
    assert getattr(found, name) == value


def test_16_bit_adapters_need_half_the_states_of_32_bit_ones() -> None:
    def states(**settings: str) -> int:
        how = {"adapter": "lora", "precision": "pure-16", "adapter_rank": 64, "sequence": 512}
        bill = tokmill.bill.training("llama-3.2-1b", **how, **settings)
        step = next(each for each in bill.moments if "step" in each.title)
        names = ("gradients", "first moment", "second moment")
        return sum(line.n_bytes for line in step.lines if line.name in names)

    assert states(adapter_type="fp32") == states() == 2 * states(adapter_type="bf16")


def test_a_comparison_in_which_nothing_fits_says_what_would() -> None:
    shown = screen("--compare model=qwen2.5-7b,qwen2.5-14b --gpu 3090 --sequence 4k")
    assert "does not fit: qwen2.5-7b, qwen2.5-14b fits with qwen2.5-7b: --" in shown
    small = screen(
        "--compare model=qwen2.5-7b,qwen2.5-14b --gpu 3090 --sequence 4k --host-ram 32GiB"
    )
    assert "--offload all" not in small
