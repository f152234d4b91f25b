"""A plan meets every limit that is given: its options, added to the command, fit everywhere."""

from __future__ import annotations

import re
from typing import Any

import pytest
from click.testing import CliRunner

from bench.plans import commands, plan_of
from tokmill.bill.gpus import Need, find_gpu
from tokmill.bill.host_ram.host import host_limit
from tokmill.bill.host_ram.machine import Machine
from tokmill.bill.models.load import load_model
from tokmill.bill.remedies.advice import gpu_limit
from tokmill.bill.remedies.search import Limit, Search, of_training
from tokmill.cli.main import cli
from tokmill.settings.training import ModelSettings, TrainingSettings

QLORA_70B = "--model llama-2-70b --gpu 24GB --adapter qlora"
"""Whose 4-bit weights are larger than the GPU."""


def screen(command: str) -> str:
    """Return what `tokmill memory` prints, on one line."""
    result = CliRunner().invoke(cli, ["memory", *command.split()])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


@pytest.mark.parametrize("command", list(commands())[3::23])
def test_a_plan_holds_against_every_limit(command: str) -> None:
    plan = plan_of(command)
    assert plan is None or not plan.wrong, plan


def test_what_moves_to_the_host_shows_its_needs_there_beside_those_of_the_gpu() -> None:
    shown = screen(QLORA_70B)
    need = r"\(GPU \S+ GiB, up to \S+ GiB; host RAM 4\d\.\d\d GiB, up to 6\d\.\d\d GiB\)"
    assert re.search(rf"fits with --offload all {need}", shown)


@pytest.mark.parametrize(
    ("host_ram", "label"),
    [
        ("64GiB", "fits with --offload all "),
        ("45GiB", "may fit --offload all "),
        ("16GiB", "advice no option makes it fit, nor do 3 together; with more host RAM: "),
    ],
)
def test_a_plan_that_needs_more_host_ram_than_is_given_is_not_offered(
    host_ram: str, label: str
) -> None:
    assert label in screen(f"{QLORA_70B} --host-ram {host_ram}")


def test_a_plan_also_mends_the_host_ram() -> None:
    shown = screen("--model llama-3-8b --gpu 4090 --gpus 8 --host-ram 128GiB")
    assert "host RAM does not fit" in shown
    assert "--initialization meta" in shown.partition(" fit --")[2].partition("(")[0]


def test_of_two_limits_both_decide() -> None:
    def on_gpu(training: TrainingSettings) -> Need:
        n_bytes = 10 if training.offload == "none" and training.loss == "full" else 5
        return Need(n_bytes, n_bytes)

    def on_host(training: TrainingSettings) -> Need:
        n_bytes = 1 if training.offload == "none" else 100
        return Need(n_bytes, n_bytes)

    how = TrainingSettings(sequence=64, optimizer_step="fused")
    free = Search(Limit(on_gpu, 5), Limit(on_host, 0)).plan(how, of_training(how))
    assert [step.options for step in free] == [("--loss fused",)]
    offload = [saving for saving in of_training(how) if saving.name == "offload"]
    (found,) = Search(Limit(on_gpu, 5), Limit(on_host, 100)).plan(how, offload)
    assert (found.peak_bytes, found.host_bytes, found.verdict) == (5, 100, "fits")
    assert Search(Limit(on_gpu, 5), Limit(on_host, 99)).plan(how, offload) == ()


def test_settings_that_a_limit_surely_refuses_are_not_billed_for_the_others() -> None:
    billed: list[TrainingSettings] = []

    def on_gpu(training: TrainingSettings) -> Need:
        billed.append(training)
        return Need(100, 100)

    def on_host(training: TrainingSettings) -> Need:
        return Need(50, 50)

    how = TrainingSettings(sequence=4096, gpus=8, micro_batch=8)
    savings = list(of_training(how))
    impossible = Limit(on_host, 10, least=lambda training: 50)
    assert Search(Limit(on_gpu, 5), impossible).plan(how, savings) == ()
    assert len(billed) <= len(savings) + 1  # each alone, to see which help


@pytest.mark.parametrize("name", ["gpt2", "llama-3-8b", "gpt-oss-20b"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"checkpointing": "full", "activation_offload": True},
        {"adapter": "qlora", "sharding": "fsdp", "checkpointing": "full"},
        {"sharding": "zero-3", "offload": "all", "loss": "kernel"},
        {"framework": "megatron", "tensor_parallel": 2, "sequence_parallel": True},
        {"framework": "megatron", "pipeline_parallel": 2, "precision": "mixed-18"},
        {"precision": "pure-16", "loss": "fused", "micro_batch": 8, "sequence": 256},
        {"reference_model": True, "precision": "pure-16", "micro_batch": 2},
    ],
)
def test_the_part_of_a_need_that_is_found_sooner_is_never_more(
    name: str, changes: dict[str, Any]
) -> None:
    settings: dict[str, Any] = {"gpus": 8, "sequence": 1024} | changes
    training, model = TrainingSettings(**settings), load_model(ModelSettings(name=name))
    limits = (gpu_limit(model, find_gpu("H100")), host_limit(model, None, Machine(1 << 40)))
    for limit in limits:
        assert limit.least is not None
        assert 0 < limit.least(training) <= limit.need(training).n_bytes
