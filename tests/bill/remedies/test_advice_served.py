"""The most that a GPU serves."""

from __future__ import annotations

from dataclasses import replace

from tokmill.bill.gpus import Gpu
from tokmill.bill.models.load import load_model
from tokmill.bill.remedies.advice import most_served
from tokmill.bill.serving.inference import inference_bill
from tokmill.settings.inference import InferenceSettings
from tokmill.settings.model import ModelSettings

MODEL = load_model(ModelSettings(name="llama-3-8b"))
SETTINGS = InferenceSettings(context=1024)


def fits(gpu: Gpu, **changed: int) -> bool:
    settings = replace(SETTINGS, **changed)
    return inference_bill(MODEL, settings, context=1024).n_bytes <= gpu.memory_bytes


def test_the_largest_batch_fits_and_one_more_does_not():
    gpu = Gpu("24GiB", 24 << 30)
    most = most_served(MODEL, SETTINGS, gpu, 1024)
    assert fits(gpu, batch=most.batch)
    assert not fits(gpu, batch=most.batch + 1)


def test_the_longest_context_fits_and_64_tokens_more_do_not():
    gpu = Gpu("16.5GiB", 33 << 29)
    most = most_served(MODEL, SETTINGS, gpu, 1024)
    assert not most.is_bounded
    assert most.context % 64 == 0
    assert fits(gpu, context=most.context)
    assert not fits(gpu, context=most.context + 64)


def test_the_model_has_a_longest_context_and_a_small_gpu_none():
    assert most_served(MODEL, SETTINGS, Gpu("80GiB", 80 << 30), 1024).is_bounded
    assert most_served(MODEL, SETTINGS, Gpu("8GiB", 8 << 30), 1024).batch == 0


def test_a_context_that_is_not_given_is_the_one_of_the_bill():
    gpu = Gpu("24GiB", 24 << 30)
    assert most_served(MODEL, InferenceSettings(), gpu, 1024) == most_served(
        MODEL, SETTINGS, gpu, 9
    )
