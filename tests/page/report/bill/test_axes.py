"""The choices: the settings' own value is one of each, and its neighbours are useful."""

from __future__ import annotations

import pytest

from tokmill.bill.bill_settings import BillSettings
from tokmill.bill.gpus import find_gpu
from tokmill.bill.models.load import load_model
from tokmill.bill.remedies.case import Case
from tokmill.page.report.bill.axes import (
    GPUS,
    LINES,
    applied,
    axes_of,
    near,
    near_gpus,
    near_models,
    place,
    spread_training,
    spreads_of,
)
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings


def names(vocabulary: int) -> list[str]:
    return [each.model.name for each in near_models(None, ModelSettings(), vocabulary)]


@pytest.mark.parametrize(
    ("vocabulary", "smallest"),
    [
        (0, "minimind2-small"),
        (6400, "minimind2-small"),
        (50257, "gpt2"),
        (50258, "pythia-160m"),
        (128256, "llama-3.2-1b"),
        (151665, "qwen2.5-0.5b"),
        (999_999, "gemma-3-270m"),
    ],
)
def test_without_a_model_those_are_shown_whose_embedding_holds_the_ids(vocabulary, smallest):
    assert names(vocabulary)[0] == smallest


def test_the_lines_are_sorted_by_vocabulary_and_by_size():
    found = [[load_model(ModelSettings(name=name)) for name in line] for line in LINES]
    least = [line[0].vocabulary for line in found]
    assert least == [min(model.vocabulary for model in line) for line in found]
    assert least == sorted(least)
    for line in found:
        sizes = [model.parameters for model in line]
        assert sizes == sorted(sizes)


def test_a_named_model_stands_among_its_neighbours_once():
    settings = ModelSettings(name="llama-3.2-3b")
    found = near_models(load_model(settings), settings, 0)
    assert [each.model.name for each in found] == [
        "llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b", "llama-3.1-70b",
    ]  # fmt: skip
    assert found[1].options == ("--model llama-3.2-3b",)


def test_a_model_by_numbers_has_its_options():
    settings = ModelSettings(
        family="llama", layers=8, hidden=512, heads=8, kv_heads=2, ffn=1408, vocabulary=6400,
        tied="yes",
    )  # fmt: skip
    found = near_models(load_model(settings), settings, 0)
    assert len(found) == 4
    (own,) = [each for each in found if "--family llama" in each.options]
    assert "--kv-heads 2" in own.options
    assert "--tied yes" in own.options


def test_a_gpu_takes_the_place_of_the_nearest():
    found = near_gpus(find_gpu("24GiB"))
    assert [gpu.name for gpu in found] == [
        "T4", "24GiB", "A6000", "A100 80GB", "H100 SXM", "H200"
    ]  # fmt: skip
    assert [gpu.name for gpu in near_gpus(find_gpu("t4"))] == list(GPUS)


def test_numbers_near_a_number():
    assert near(4, (1, 2, 4, 8)) == (1, 2, 4, 8)
    assert near(32, (1, 2, 4, 8)) == (2, 4, 8, 32)
    assert near(3000, (512, 1024, 2048, 4096)) == (1024, 2048, 3000, 4096)


@pytest.mark.parametrize(
    ("training", "labels"),
    [
        ({}, ["1 GPU", "8 GPUs, DDP", "8 GPUs, ZeRO-2", "8 GPUs, ZeRO-3"]),
        ({"gpus": 16, "sharding": "zero-2"},
         ["1 GPU", "16 GPUs, DDP", "16 GPUs, ZeRO-2", "16 GPUs, ZeRO-3"]),
        ({"gpus": 4, "sharding": "fsdp"},
         ["1 GPU", "4 GPUs, DDP", "4 GPUs, ZeRO-2", "4 GPUs, ZeRO-3", "4 GPUs, FSDP"]),
        ({"framework": "megatron", "gpus": 4},
         ["1 GPU", "4 GPUs, DDP", "4 GPUs, distributed optimizer"]),
        ({"sharding": "zero-3"},
         ["1 GPU", "1 GPU, ZeRO-3", "8 GPUs, DDP", "8 GPUs, ZeRO-2", "8 GPUs, ZeRO-3"]),
    ],
)  # fmt: skip
def test_gpus_and_sharding_have_those_of_the_settings(training, labels):
    assert [each.label for each in spreads_of(TrainingSettings(**training))] == labels


def test_nodes_stay_only_with_the_gpus_that_they_have():
    training = TrainingSettings(gpus=16, nodes=2, gpus_per_node=8)
    found = [spread_training(training, spread) for spread in spreads_of(training)]
    assert [(each.gpus, each.nodes) for each in found] == [(1, 0), (16, 2), (16, 2), (16, 2)]


def test_the_first_case_is_that_of_the_settings():
    settings = BillSettings(
        ModelSettings(name="qwen2.5-7b"),
        TrainingSettings(gpu="a100-80", gpus=4, sharding="zero-2", micro_batch=16, sequence=8192),
    )
    axes = axes_of(settings, load_model(settings.model), 0)
    model, gpu, spread, batch, sequence = axes.start
    assert axes.models[model].model.name == "qwen2.5-7b"
    assert axes.gpus[gpu].name == "A100 80GB"
    assert axes.gpu_names[gpu] == "a100-80"
    assert axes.spreads[spread].label == "4 GPUs, ZeRO-2"
    assert (axes.batches[batch], axes.sequences[sequence]) == (16, 8192)
    assert axes.chosen == (True, True)


def test_an_example_is_not_longer_than_its_models_positions():
    axes = axes_of(BillSettings(training=TrainingSettings(sequence=2048)), None, 50257)
    assert axes.models[axes.start[0]].model.name == "gpt2"
    assert axes.sequences[axes.start[4]] == 1024
    assert axes.chosen == (False, False)


def test_a_remedy_that_is_set_already_is_no_row():
    settings = BillSettings(training=TrainingSettings(sequence=512, checkpointing="full"))
    axes = axes_of(settings, None, 0)
    assert "full checkpointing" not in [name for name, _ in axes.remedies]
    model = axes.models[0].model
    assert applied(Case(model, axes.training), (("activation checkpointing", -1),)) is None


def test_the_last_choice_changes_fastest():
    lengths = (2, 3, 4)
    found = [place((i, j, k), lengths) for i in range(2) for j in range(3) for k in range(4)]
    assert found == list(range(24))
