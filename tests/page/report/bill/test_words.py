"""Words of a case: those of `tokmill memory`, at every edge."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.bill.formula import Bill, Line
from tokmill.bill.gpus import AT_LEAST, Gpu, gpu_verdict
from tokmill.bill.text.summary import verdict_text
from tokmill.page.report.bill.cases import VERDICTS, verdict_digit
from tokmill.page.report.bill.words import (
    AS_SET,
    NONE_ALONE,
    NOT_ALL,
    bars,
    case_number,
    verdict_words,
    view_of,
    words,
)
from tokmill.words.units import memory

BYTES = st.integers(0, 2**44)


def bill(low: int, n_bytes: int, high: int, missing: str = "") -> Bill:
    return Bill("x", (Line("weights", n_bytes, low, high, ""),), (), missing)


@given(st.tuples(BYTES, BYTES).map(sorted), st.integers(1 << 28, 1 << 40), st.booleans())
def test_verdicts_are_those_of_the_command(amounts, room, is_known):
    missing = "" if is_known else "activations and logits"
    found, gpu = bill(amounts[0], *amounts, missing), Gpu("X", room)
    digit = int(verdict_digit(found, found.n_bytes, gpu))
    said = gpu_verdict(found, gpu)
    assert said == (AT_LEAST if digit > 2 else VERDICTS[digit])
    text, shown = verdict_text(found, gpu), verdict_words(digit, found.n_bytes, gpu)
    assert shown == (text.replace(f"not included: {missing}", NOT_ALL) if missing else text)


@pytest.mark.parametrize(
    ("need", "high", "digit"),
    [
        (2**30, 2**30, 0),
        (2**30, 2**30 + 1, 1),
        (2**30 + 1, 2**30 + 1, 2),
    ],
)
def test_the_edge_of_a_gpu(need, high, digit):
    assert verdict_digit(bill(need, need, high), need, Gpu("X", 2**30)) == str(digit)


def test_checkpointing_takes_longer_and_lora_less(llama):
    found, _ = bars(llama.view, llama.axes.start)
    seconds = {bar.name: float(bar.note.removesuffix(" s")) for bar in found}
    assert seconds["full checkpointing"] > seconds[AS_SET] > seconds["LoRA"]


def test_a_case_that_fits_by_the_estimate_names_only_what_fits_surely(llama):
    digits = llama.cases.verdicts
    n_rows, n_gpus = 1 + len(llama.axes.remedies), len(llama.axes.gpus)
    axes = llama.axes
    lengths = map(len, (axes.models, axes.gpus, axes.spreads, axes.batches, axes.sequences))
    at = next(
        at
        for at in itertools.product(*map(range, lengths))
        if digits[case_number(axes, at) * n_gpus + at[1]] == "1"
    )
    said = words(llama.view, at)
    assert said.kind == "maybe"
    assert said.verdict.endswith("by the estimate, not by the upper bound")
    found, _ = bars(llama.view, at)
    assert len(found) == n_rows
    named = [f"{bar.name} ({memory(bar.n_bytes)})" for bar in found[1:] if bar.kind == "yes"]
    assert said.remedies == (", ".join(named) or NONE_ALONE)


def test_without_a_part_that_matters_no_change_makes_it_fit(made, pretrained):
    for gpu in ("H200", "4GiB"):
        found = made(
            pretrained.directory, small=True, model={"name": "llama-3.2-1b"},
            training={"gpu": gpu, "adapter": "dora"},
        )  # fmt: skip
        assert words(found.view, found.axes.start).remedies == NOT_ALL


def test_without_a_dataset_there_is_no_time(llama):
    cases = dataclasses.replace(llama.cases, times=(), durations=(), steps=())
    view = view_of(llama.axes, cases, None, llama.bill.settings, ("out", {}))
    assert words(view, llama.axes.start).time == ""
    found, _ = bars(view, llama.axes.start)
    assert {bar.note for bar in found} == {""}


def test_the_command_has_what_the_run_did_not_record(llama):
    settings = llama.bill.settings
    size = llama.bill.disk.size

    def command(recorded):
        view = view_of(llama.axes, llama.cases, size, settings, ("a b", recorded))
        return view.command

    assert command({}) == "tokmill report 'a b' --price-per-hour 0.5"
    assert command({"price_per_hour": 0.5}) == "tokmill report 'a b'"
    both = "tokmill report 'a b' --checkpointing none --price-per-hour 0.5"
    assert command({"checkpointing": "full"}) == both
