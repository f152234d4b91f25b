"""Serving and loading: every case has the numbers of the bill of its settings, called alone."""

from __future__ import annotations

import itertools

import pytest

import tokmill
from tests.page.report.bill.conftest import MACHINE
from tokmill.bill.bill_settings import BillSettings
from tokmill.bill.dataset_size import DatasetSize
from tokmill.bill.gpus import gpu_verdict
from tokmill.bill.host_ram.host import host_bill
from tokmill.bill.host_ram.machine import Machine
from tokmill.bill.models.load import load_model
from tokmill.page.report.bill.axes import axes_of
from tokmill.page.report.bill.cases import VERDICTS
from tokmill.page.report.bill.others import (
    NO_CONTEXT,
    loading_bars,
    serving_bars,
    serving_number,
    serving_words,
)
from tokmill.page.report.bill.tables import HOST_VERDICTS, loading_of, serving_of
from tokmill.settings.inference import InferenceSettings
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import LOADING, TrainingSettings


def test_serving_equals_the_bill_of_inference(llama):
    table = serving_of(llama.axes, InferenceSettings(kv_type="fp8"))
    lengths = map(len, (llama.axes.models, table.weights, table.batches, table.contexts))
    for model, kind, batch, context in list(itertools.product(*map(range, lengths)))[::7]:
        name = llama.axes.models[model].model.name
        bill = tokmill.bill.inference(
            name, weight_type=table.weights[kind], batch=table.batches[batch],
            context=table.contexts[context], kv_type="fp8",
        )  # fmt: skip
        for gpu, each in enumerate(llama.axes.gpus):
            at = (model, gpu, kind, batch)
            bars, limit = serving_bars(llama.axes, table, at)
            bar = bars[context]
            assert (bar.low_bytes, bar.n_bytes, bar.high_bytes) == (
                bill.low_bytes, bill.n_bytes, bill.high_bytes,
            )  # fmt: skip
            assert limit.n_bytes == each.memory_bytes
            number = serving_number(llama.axes, table, at, context)
            digit = int(table.verdicts[number * len(llama.axes.gpus) + gpu])
            assert VERDICTS[digit] == gpu_verdict(bill, each)


def test_serving_names_the_longest_context_that_fits(llama):
    table = serving_of(llama.axes, InferenceSettings())
    model, gpu = llama.axes.start[:2]
    at = (model, gpu, 0, 0)
    bars, _ = serving_bars(llama.axes, table, at)
    assert [bar.kind for bar in bars] == ["yes"] * len(bars)
    said = "llama-3.2-1b serves 1 sequence of up to 131,072 tokens on RTX 4090 (23.52 GiB)"
    assert serving_words(llama.axes, table, at) == (said, "yes")
    largest = (len(llama.axes.models) - 1, 0, 0, len(table.batches) - 1)
    none = "llama-3.1-70b serves none of these contexts on T4 (14.57 GiB), 32 sequences at once"
    assert serving_words(llama.axes, table, largest) == (none, "no")


def test_a_context_beyond_the_positions_has_no_bar():
    settings = BillSettings(ModelSettings("gpt2"), TrainingSettings(gpu="T4", sequence=1024))
    axes = axes_of(settings, load_model(settings.model), 0)
    table = serving_of(axes, InferenceSettings())
    bars, _ = serving_bars(axes, table, (*axes.start[:2], 0, 0))
    texts = {bar.name: bar.text for bar in bars}
    assert texts["2,048 tokens"] == NO_CONTEXT
    assert texts["1,024 tokens"].endswith(", fits")


def test_the_context_of_the_settings_is_a_row(llama):
    table = serving_of(llama.axes, InferenceSettings(context=3000, batch=4, weight_type="nf4"))
    kind, batch, context = table.start
    assert table.contexts[context] == 3000
    assert table.batches[batch] == 4
    assert table.weights[kind] == "nf4"


@pytest.mark.parametrize("size", [
    DatasetSize("pretrain", 10**9, 10**6, 2, largest_shard_tokens=10**8),
    DatasetSize("sft", 10**8, 10**5, 4, mask=True, weights=True, largest_shard_tokens=10**7),
])  # fmt: skip
def test_loading_equals_the_bill_of_host_ram(size):
    training = TrainingSettings(sequence=2048, loader_workers=3, prefetch=4)
    table = loading_of(training, size, MACHINE)
    assert table.workers == (0, 2, 3, 4)
    assert (table.usable_bytes, table.machine) == (64 << 30, "this machine")
    for (i, method), (j, workers) in itertools.product(
        enumerate(table.starts), enumerate(table.workers)
    ):
        bars, limit = loading_bars(table, (i, j))
        for bar, loading in zip(bars, LOADING, strict=True):
            how = TrainingSettings(
                sequence=2048, loader_workers=workers, prefetch=4, start_method=method,
                loading=loading,
            )  # fmt: skip
            bill = host_bill(None, how, size, MACHINE)
            assert bar.name == loading
            assert (bar.low_bytes, bar.n_bytes, bar.high_bytes) == (
                bill.peak.low_bytes, bill.peak.n_bytes, bill.peak.high_bytes,
            )  # fmt: skip
            assert bar.text.endswith(f", {bill.verdict.said}") or bill.verdict.said not in (
                "fits", "does not fit",
            )  # fmt: skip
            assert table.page_cache == bill.page_cache.n_bytes
        assert (limit is None) == (4 * max(bar.high_bytes for bar in bars) < 64 << 30)


def test_a_machine_that_is_not_known_has_no_verdict():
    training = TrainingSettings(sequence=512, gpu="H100", gpus=8)
    table = loading_of(training, DatasetSize("pretrain", 10**6, 10, 2), Machine())
    assert {HOST_VERDICTS[int(digit)] for digit in table.verdicts} == {"unknown"}
    bars, limit = loading_bars(table, (0, 0))
    assert limit is None
    assert all(bar.text.endswith("iB") for bar in bars)
