"""Advice on serving: the most that a GPU serves, and what makes a model fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tokmill.bill.gpus import Gpu, find_gpu
from tokmill.bill.models.load import load_model
from tokmill.bill.remedies.advice import Advice, advise_serving
from tokmill.bill.serving import inference_bill
from tokmill.settings.inference import InferenceSettings
from tokmill.settings.model import ModelSettings

MODEL = load_model(ModelSettings(name="llama-3-8b"))
SETTINGS = InferenceSettings(context=1024)


def fits(gpu: Gpu, **changed: int) -> bool:
    settings = replace(SETTINGS, **changed)
    return inference_bill(MODEL, settings, context=1024).n_bytes <= gpu.memory_bytes


def served(gpu: Gpu, settings: InferenceSettings = SETTINGS) -> Advice:
    return advise_serving(MODEL, settings, gpu, context=1024)


def test_the_largest_batch_fits_and_one_more_does_not():
    gpu = Gpu("24GiB", 24 << 30)
    most = served(gpu)
    assert fits(gpu, batch=most.largest_batch)
    assert not fits(gpu, batch=most.largest_batch + 1)


def test_the_longest_context_fits_and_64_tokens_more_do_not():
    gpu = Gpu("16.5GiB", 33 << 29)
    most = served(gpu)
    assert not most.is_bounded
    assert most.largest_sequence % 64 == 0
    assert fits(gpu, context=most.largest_sequence)
    assert not fits(gpu, context=most.largest_sequence + 64)


def test_the_model_has_a_longest_context_and_a_small_gpu_none():
    assert served(Gpu("80GiB", 80 << 30)).is_bounded
    assert served(Gpu("8GiB", 8 << 30)).largest_batch == 0


@pytest.mark.parametrize(
    ("gpu", "settings", "expected"),
    [
        # The weights fit, the cache of 48 x 8k tokens does not: half of its 48 GiB does.
        ("A6000", {"batch": 48, "context": 8192, "weight_type": "int8"}, ["--kv-type fp8"]),
        ("4060", {"context": 1024}, ["--weight-type int4"]),
        ("T4", {"context": 8192, "batch": 64, "weight_type": "int4", "kv_type": "int4"},
         ["--batch 16"]),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_rounded_before_less_is_served(gpu, settings, expected):
    room = find_gpu(gpu)
    found = served(room, InferenceSettings(**settings))
    assert found.verdict == "does not fit"
    assert [option for step in found.plan for option in step.options] == expected
    assert found.plan[-1].high_bytes <= room.memory_bytes


def test_more_gpus_are_the_last_advice():
    model = load_model(ModelSettings(name="llama-3-70b"))
    settings = InferenceSettings(weight_type="int4", kv_type="int4", context=256)
    found = advise_serving(model, settings, find_gpu("4090"), context=256)
    assert [step.options for step in found.plan] == [("--serving-gpus 2",)]
