"""The data for the script: every choice with its options and notes, every table with its sizes."""

from __future__ import annotations

import json
import shlex

import pytest

from tests.page.report.bill.conftest import MACHINE
from tokmill.page.report.bill.groups import LOADING_GROUPS, SERVING_GROUPS, TRAINING_GROUPS
from tokmill.page.report.bill.plain import plain_data
from tokmill.page.report.bill.tables import loading_of, serving_of
from tokmill.page.report.bill.words import notes_of, words


@pytest.fixture(scope="module")
def data(llama):
    """The data as a script reads it."""
    training = llama.bill.settings.training
    loading = loading_of(training, llama.bill.disk.size, MACHINE)
    serving = serving_of(llama.axes, llama.bill.settings.inference)
    return json.loads(json.dumps(plain_data(llama.view, serving, loading), allow_nan=False))


def test_choices_are_those_of_the_axes(data, llama):
    axes = llama.axes
    assert [one["name"] for one in data["models"]] == [each.model.name for each in axes.models]
    assert [one["bytes"] for one in data["gpus"]] == [gpu.memory_bytes for gpu in axes.gpus]
    assert [one["label"] for one in data["spreads"]] == [each.label for each in axes.spreads]
    assert data["batches"] == list(axes.batches)
    assert data["sequences"] == list(axes.sequences)
    assert len(data["rows"]) == 1 + len(axes.remedies)


def test_options_of_the_choices_make_the_command(data, llama):
    for at in (llama.axes.start, (3, 5, 3, 0, 3)):
        model, gpu, spread, batch, sequence = at
        parts = [
            data["command"], data["models"][model]["options"], data["gpus"][gpu]["options"],
            data["spreads"][spread]["options"], f"--micro-batch {data['batches'][batch]}",
            f"--sequence {data['sequences'][sequence]}",
        ]  # fmt: skip
        assert " ".join(parts) == words(llama.view, at).command
    assert shlex.split(data["gpus"][1]["options"]) == ["--gpu", "RTX 4090"]


def test_notes_of_the_choices_make_those_of_a_case(data, llama):
    for at in ((0, 0, 0, 0, 3), (2, 0, 3, 1, 0), llama.axes.start):
        model, gpu, spread, _, sequence = at
        one, where = data["models"][model], data["spreads"][spread]
        found = [
            *one["warnings"], *one["notes"][sequence], *where["notes"][gpu], *one["stored"][spread]
        ]  # fmt: skip
        assert found == list(notes_of(llama.view, at))


def test_tables_have_a_place_for_every_case(data):
    sizes = [len(data[key]) for key in ("models", "spreads", "batches", "sequences", "rows")]
    n_cases = sizes[0] * sizes[1] * sizes[2] * sizes[3] * sizes[4]
    cases = data["cases"]
    assert len(cases["amounts"]) == n_cases * (len(TRAINING_GROUPS) + 2)
    assert len(cases["verdicts"]) == n_cases * len(data["gpus"])
    assert len(cases["peaks"]) == n_cases
    assert len(cases["times"]) == n_cases // sizes[2] * len(data["gpus"])
    assert len(cases["steps"]) == sizes[1] * sizes[2] * sizes[3]
    assert len(cases["workspaces"]) == len(data["gpus"])
    serving = data["serving"]
    n_served = sizes[0]
    for key in ("weights", "batches", "contexts"):
        n_served *= len(serving[key])
    assert len(serving["amounts"]) == n_served * (len(SERVING_GROUPS) + 2)
    loading = data["loading"]
    n_loaded = len(loading["starts"]) * len(loading["workers"]) * len(loading["strategies"])
    assert len(loading["amounts"]) == n_loaded * (len(LOADING_GROUPS) + 2)


def test_without_a_dataset_there_is_no_loading(llama):
    serving = serving_of(llama.axes, llama.bill.settings.inference)
    assert plain_data(llama.view, serving, None)["loading"] is None


def test_amounts_are_whole_numbers(data):
    assert all(type(n) is int for n in data["cases"]["pool"])
    assert data["cases"]["pool"] == sorted(set(data["cases"]["pool"]))
    assert all(type(n) is int for n in data["serving"]["amounts"])
    assert all(type(n) is int for n in data["loading"]["amounts"])
