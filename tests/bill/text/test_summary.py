"""The verdict and the most important amounts of a bill, in about ten rows."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from tests.bill.text.printed import FOUND, PLANNED, bill
from tokmill.bill.host_ram.machine import Machine
from tokmill.bill.text import PARTS
from tokmill.bill.text.summary import missing_disk_bytes, summary_rows
from tokmill.settings.training import InferenceSettings, ModelSettings

TRAINING = PARTS[:-1]


def rows(*wanted: Any, parts: Collection[str] = TRAINING, **settings: Any) -> dict[str, str]:
    found = summary_rows(bill(*wanted, **settings), parts)
    return {row.label: row.text for row in found}


@pytest.mark.parametrize(
    ("model", "settings", "missing"),
    [
        ("gpt2", {"adapter": "dora"}, "DoRA's magnitudes"),
        ("gemma-3-4b", {"adapter": "lora"}, "parts besides the text model"),
        ("mixtral-8x7b", {"adapter": "lora", "adapter_targets": "gate"}, ""),
        ("mixtral-8x7b", {"adapter": "lora", "adapter_targets": "w1,w2,w3"}, "the product of"),
    ],
)
def test_without_a_part_that_matters_the_verdict_is_a_lower_bound(
    model: str, settings: dict[str, Any], missing: str
) -> None:
    shown = rows(model=ModelSettings(name=model), gpu="1TB", **settings)
    assert shown["verdict"].startswith("at least " if missing else "fits on 1TB ")
    for how in ({"gpu": "1TB"}, {"gpu": "256MiB"}, {}):
        texts = rows(model=ModelSettings(name=model), **how, **settings).values()
        assert sum(f"not included: {missing}" in text for text in texts) == bool(missing)


def test_the_verdict_names_what_else_does_not_fit():
    small = Machine(memory_bytes=1 << 27, gpus=("Tesla T4",))
    assert rows(gpu="T4", machine=small)["verdict"].endswith(" left; host RAM does not fit")
    full = replace(PLANNED, free_bytes=10**9)
    assert rows(full, gpu="T4")["verdict"].endswith(" left; too little disk space")


def test_a_pipeline_names_its_fullest_stage_and_the_peaks_of_both_ends():
    found = rows(gpus=4, pipeline_parallel=4, accumulation=8, framework="megatron")
    assert re.fullmatch(
        r"fullest pipeline stage: 4 \(stage 1 [\d.]+ GiB, stage 4 [\d.]+ GiB\)", found[""]
    )


def test_inference_is_shown_when_it_is_asked_for():
    assert "inference" not in rows()
    served = {"asked": {"inference": InferenceSettings(context=512, batch=4)}}
    both = rows(parts=PARTS, gpu="24GiB", **served)
    assert both["verdict"].startswith("fits on 24GiB")
    assert both["inference"].startswith("fits on 24GiB")
    alone = rows(parts=("inference",), gpu="24GiB", **served)
    assert list(alone) == ["verdict", "GPU memory", "KV cache", "largest", "model", "inference"]
    assert re.fullmatch(
        r"users [\d,]+ at context 512; at users 4, the model's maximum of 1,024; "
        r"room for [\d,]+ tokens",
        alone["largest"],
    )
    small = rows(parts=("inference",), gpu="256MiB", **served)
    assert small["advice"].startswith("no option makes it fit")
    # Weights: 2 bytes of each parameter; cache: 12 layers of 768 keys and values in 16 bit.
    weights, cache = 2 * 124_439_808, 2 * 12 * 768 * 2 * 512 * 4
    assert alone["GPU memory"].endswith(f", of which weights {weights / 2**20:.1f} MiB")
    assert alone["KV cache"] == (
        f"{2 * 12 * 768 * 2 / 1024:.1f} KiB per token, {cache / 2**20:.1f} MiB for 4 x 512 tokens"
    )
    assert alone["inference"] == (
        "vLLM (default), weights bf16, KV cache bf16, 4 users (--users), context 512"
    )


def test_disk_names_what_is_there_what_is_to_come_and_what_is_free():
    # AdamW in fp32: 12 bytes of each parameter, 2 checkpoints kept and one being written.
    checkpoints = 3 * 12 * 124_439_808
    assert rows()["disk"] == "checkpoints up to 4.48 GB (2 kept, 1 being written)"
    assert rows(PLANNED)["disk"] == (
        "dataset 20.1 MB, checkpoints up to 4.48 GB (2 kept, 1 being written); 50 GB free"
    )
    there = replace(PLANNED, bill=FOUND.bill, found=FOUND, free_bytes=checkpoints)
    assert missing_disk_bytes(bill(there)) == 0
    assert missing_disk_bytes(bill(replace(there, free_bytes=checkpoints - 7))) == 7
    planned = replace(there, found=None)
    assert missing_disk_bytes(bill(planned)) == planned.bill.high_bytes
    assert rows(replace(there, free_bytes=10**9))["disk"].endswith(
        "; 1 GB free: TOO LITTLE, 3.48 GB missing"
    )


def test_notes_and_unread_keys_of_settings_files_stand_last():
    found = rows(asked={"notes": ("a note",), "not_read": ("zero.x = 1",)})
    assert list(found.items())[-2:] == [
        ("note", "a note"), ("not read", "keys of settings files: zero.x = 1"),
    ]  # fmt: skip


def test_batches_that_do_not_fit_in_shared_memory_are_said_so():
    machine = Machine(memory_bytes=1 << 40, shm_bytes=1 << 20)
    shown = rows(machine=machine, loader_workers=8, micro_batch=64)
    assert "does not fit in the 1.0 MiB of /dev/shm; fits with" in shown["host RAM"]
