"""Every case has the numbers of `tokmill.bill.of`, called alone with its settings."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

import tokmill
from tokmill.bill.gpus import gpu_verdict
from tokmill.bill.text.summary import bounds, verdict_text
from tokmill.bill.text.tables import moment
from tokmill.errors import UsageError
from tokmill.page.report.bill.cases import (
    VERDICTS,
    remedied,
    settings_of,
)
from tokmill.page.report.bill.groups import TRAINING_GROUPS, training_group
from tokmill.page.report.bill.words import bars, case_number, duration_of, words
from tokmill.settings.training import TrainingSettings
from tokmill.words.units import seconds


def settings_alone(made, at, row=0):
    """Return model and settings of a case that are not the default, for a function of the bill."""
    axes = made.axes
    model = axes.models[at[0]].model
    training = remedied(axes, model, settings_of(axes, *at[2:]), row)
    settings = dataclasses.asdict(training)
    default = dataclasses.asdict(TrainingSettings())
    changed = {name: value for name, value in settings.items() if value != default[name]}
    return model.name, {**changed, "gpu": axes.gpu_names[at[1]], "sequence": training.sequence}


def bill_alone(made, at, row=0):
    """Return the full bill of a case, computed from its settings only."""
    name, settings = settings_alone(made, at, row)
    return tokmill.bill.of(name, made.directory, **settings)


def some(made, n):
    """Return about `n` cases of all choices, the settings' own and the last one among them."""
    axes = made.axes
    lengths = map(len, (axes.models, axes.gpus, axes.spreads, axes.batches, axes.sequences))
    everything = list(itertools.product(*map(range, lengths)))
    return [axes.start, *everything[:: len(everything) // n], everything[-1]]


@pytest.mark.parametrize("which", ["llama", "unnamed"])
def test_cases_equal_the_bill_of_their_settings(request, which):
    made = request.getfixturevalue(which)
    n_rows = 1 + len(made.axes.remedies)
    for i, at in enumerate(some(made, 20)):
        row = i % n_rows
        name, settings = settings_alone(made, at, row)
        peak = tokmill.bill.training(name, made.directory, **settings).peak
        gpu = made.axes.gpus[at[1]]
        found, limit = bars(made.view, at)
        groups = dict.fromkeys(TRAINING_GROUPS, 0)
        for line in peak.lines:
            groups[training_group(line.name)] += line.n_bytes
        assert found[row].amounts == tuple(groups.values()), at
        assert (found[row].low_bytes, found[row].high_bytes) == (peak.low_bytes, peak.high_bytes)
        assert found[row].n_bytes == peak.n_bytes
        assert limit.n_bytes == gpu.memory_bytes
        digit = made.cases.verdicts[
            (case_number(made.axes, at) + row) * len(made.axes.gpus) + at[1]
        ]
        assert VERDICTS[int(digit)] == gpu_verdict(peak, gpu)


@pytest.mark.parametrize("which", ["llama", "unnamed"])
def test_words_are_those_of_the_summary(request, which):
    made = request.getfixturevalue(which)
    for at in some(made, 8):
        bill = bill_alone(made, at)
        found, peak = words(made.view, at), bill.of_model.training.peak
        name, gpu = made.axes.models[at[0]].model.name, made.axes.gpus[at[1]]
        gpus = made.axes.spreads[at[2]].gpus
        each = f", each of {gpus} GPUs:" if gpus > 1 else ""
        assert found.verdict == f"{name}{each} {verdict_text(peak, gpu)}"
        assert found.memory.startswith(bounds(peak))
        assert found.memory.endswith(f"; peak: {moment(peak)}")
        assert found.notes == bill.settings.notes


def test_times_and_steps_are_those_of_the_bill(llama):
    n_rows = 1 + len(llama.axes.remedies)
    for i, at in enumerate(some(llama, 8)):
        compute = bill_alone(llama, at, i % n_rows).of_model.compute
        text = duration_of(llama.view, at, i % n_rows)
        assert text.startswith(seconds(compute.seconds))
        assert f"cost {compute.cost:,.2f}" in text
        assert ("GPU hours" in text) == (llama.axes.spreads[at[2]].gpus > 1)
        assert f"{compute.steps:,} step" in words(llama.view, at).time


def test_an_impossible_case_says_why(made, pretrained):
    found = made(
        pretrained.directory, small=True, model={"name": "llama-3.2-1b"},
        training={"gpus": 8, "tensor_parallel": 2, "gpu": "H100"},
    )  # fmt: skip
    model, gpu, _, batch, sequence = found.axes.start
    at = (model, gpu, 0, batch, sequence)
    assert found.axes.spreads[0].gpus == 1
    said = words(found.view, at)
    with pytest.raises(UsageError) as raised:
        bill_alone(found, at)
    assert str(raised.value) in said.verdict
    assert said.kind == "no"
    rows, _ = bars(found.view, at)
    assert {bar.n_bytes for bar in rows} == {0}
    assert rows[0].why == str(raised.value)


def test_a_model_without_a_shape_never_fits(made, pretrained):
    found = made(
        pretrained.directory, small=True, model={"parameters": 10**8}, training={"gpu": "H200"}
    )
    said = words(found.view, found.axes.start)
    text = verdict_text(found.bill.of_model.training.peak, found.axes.gpus[found.axes.start[1]])
    least, _, missing = text.partition("; ")
    assert least in said.verdict
    assert missing == "not included: activations and logits"
    assert said.kind == ""
