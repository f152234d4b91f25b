"""The verdict and the most important amounts of a bill, in about ten rows."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from tests.bill.text.printed import FOUND, PLANNED, bill, printed
from tokmill.bill.host_ram.machine import Machine
from tokmill.bill.text import PARTS
from tokmill.bill.text.summary import asked_parts, missing_disk_bytes, summary_rows
from tokmill.bill.text.tables import labelled
from tokmill.settings.inference import InferenceSettings
from tokmill.settings.model import ModelSettings
from tokmill.words.units import memory

TRAINING = PARTS[:-1]


def rows(*wanted: Any, parts: Collection[str] = TRAINING, **settings: Any) -> dict[str, str]:
    found = summary_rows(bill(*wanted, **settings), parts)
    return {row.label: row.text for row in found}


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ("80GiB", r"fits on 80GiB \(80\.00 GiB\): 7\d\.\d\d GiB left"),
        ("2GiB", r"does not fit on 2GiB \(2\.00 GiB\): 1\.\d\d GiB missing"),
        (
            "4GiB",
            r"fits on 4GiB \(4\.00 GiB\) by the estimate, not by the upper bound",
        ),
        ("", "unknown: add --gpu, such as --gpu=4090 or --gpu=24GiB"),
    ],
)
def test_the_verdict_stands_first(gpu: str, expected: str):
    label, text = next(iter(rows(gpu=gpu).items()))
    assert label == "verdict"
    assert re.fullmatch(expected, text)


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


def test_the_peak_of_gpu_memory_has_its_bounds_and_its_moment():
    found = bill(precision="fp32", sequence=16, optimizer_step="foreach").of_model
    assert found is not None
    low, expected, high = (
        n / 2**30
        for n in (
            found.training.peak.low_bytes,
            found.training.peak.n_bytes,
            found.training.peak.high_bytes,
        )
    )
    assert rows(precision="fp32", sequence=16)["GPU memory"] == (
        f"{expected:.2f} GiB ({low:.2f} to {high:.2f}); peak: optimizer step; "
        f"activations before it: up to {memory(found.training.activation_bytes)}"
    )


def test_a_model_without_a_shape_says_that_its_activations_are_not_included():
    found = rows(model=ModelSettings(parameters=7_500_000_000), gpus=64, sharding="zero-2")
    assert "; not included: activations and logits" in found["verdict"]
    assert "not included" not in rows()["verdict"]


def test_what_fits_comes_with_the_most_that_fits():
    found = rows(gpu="T4")
    assert re.fullmatch(
        r"micro batch \d+ at sequence 1,024; at micro batch 1, the model's maximum of 1,024",
        found["largest"],
    )
    assert "fits with" not in found


def test_what_does_not_fit_comes_with_options_that_make_it_fit():
    found = rows(gpu="4GiB", micro_batch=16)
    assert re.fullmatch(r"--\S.* \([23]\.\d\d GiB, up to [34]\.\d\d GiB\)", found["fits with"])
    assert "largest" not in found
    assert re.fullmatch(r"--.* \(2\.\d\d GiB, up to 4.* GiB\)", rows(gpu="3GiB")["may fit"])
    assert rows(gpu="256MiB")["advice"].startswith("no option makes it fit")


def test_what_fits_by_the_estimate_alone_comes_with_options_that_are_safer():
    assert re.fullmatch(r"--\S.* GiB\)", rows(gpu="4GiB")["safer with"])


def test_a_model_has_its_parameters_and_the_active_ones_where_they_differ():
    assert rows()["model"] == "gpt2, 124,439,808 parameters"
    mixtral = rows(model=ModelSettings(name="mixtral-8x7b"))
    assert mixtral["model"] == (
        "mixtral-8x7b (mixtral), 46,702,792,704 parameters, 12,879,925,248 active per token"
    )


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
        r"batch [\d,]+ at context 512; at batch 4, the model's maximum of 1,024", alone["largest"]
    )
    small = rows(parts=("inference",), gpu="256MiB", **served)
    assert small["advice"].startswith("no option makes it fit")
    # Weights: 2 bytes of each parameter; cache: 12 layers of 768 keys and values in 16 bit.
    weights, cache = 2 * 124_439_808, 2 * 12 * 768 * 2 * 512 * 4
    assert alone["GPU memory"].endswith(f", of which weights {weights / 2**20:.1f} MiB")
    assert alone["KV cache"] == (
        f"{2 * 12 * 768 * 2 / 1024:.1f} KiB per token, {cache / 2**20:.1f} MiB for 4 x 512 tokens"
    )
    assert alone["inference"] == "weights bf16, KV cache bf16, batch 4, context 512"


def test_the_parts_that_are_asked_for_follow_the_settings():
    assert asked_parts(bill().settings) == TRAINING
    assert asked_parts(bill(asked={"serves": True}).settings) == PARTS
    only = bill(asked={"serves": True, "trains": False})
    assert asked_parts(only.settings) == ("inference",)


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


def test_cost_is_the_price_of_all_gpu_hours():
    found = rows(
        model=ModelSettings(name="llama-3-8b"), gpu="A100-80", gpus=8, sharding="zero-3",
        tokens=300 * 10**9, price_per_hour=2.0,
    )["time"]  # fmt: skip
    hours = re.search(r", ([\d,]+) GPU hours, cost ([\d,]+); ", found)
    assert hours is not None
    # 6 FLOP a parameter and token, attention on top (under 5% at 2,048 tokens).
    least = 6 * 7.5e9 * 300e9 / (0.4 * 312e12) / 3600
    used, cost = (int(text.replace(",", "")) for text in hours.groups())
    assert least < used < 1.1 * least
    assert cost == pytest.approx(2 * used, abs=2)


@pytest.mark.parametrize(
    ("memory_bytes", "expected"),
    [
        (0, "set --host-ram to see whether it fits"),
        (1 << 30, "fits in 1.00 GiB of this machine by the estimate, not by the upper bound"),
        (4 << 30, "fits in 4.00 GiB of this machine"),
        (1 << 29, "does not fit in 512.0 MiB of this machine"),
    ],
)
def test_host_ram_is_compared_with_a_machine_that_is_known(memory_bytes: int, expected: str):
    host = rows(machine=Machine(memory_bytes=memory_bytes), initialization="meta")["host RAM"]
    assert expected in host.split("; ")


def test_host_ram_is_that_of_a_node_and_of_each_process():
    # fp32 weights of 8 processes on each node, and 277 MiB of packages in each.
    mib = 8 * (4 * 124_439_808 / 2**20 + 277)
    found = rows(gpus=16)["host RAM"]
    assert re.match(r"([\d.]+) GiB .* per node, ([\d.]+) MiB for each of 8 processes; ", found)
    node, process = re.findall(r"([\d.]+) [GM]iB", found)
    assert float(node) == pytest.approx(mib / 1024, abs=0.01)
    assert float(process) == pytest.approx(mib / 8, abs=0.1)


def test_without_a_model_a_row_says_how_to_name_one():
    found = rows(PLANNED, ModelSettings())
    assert list(found) == ["host RAM", "disk", "GPU memory"]
    assert found["GPU memory"].startswith("unknown: add --model")


def test_notes_and_unread_keys_of_settings_files_stand_last():
    found = rows(asked={"notes": ("a note",), "not_read": ("zero.x = 1",)})
    assert list(found.items())[-2:] == [
        ("note", "a note"), ("not read", "keys of settings files: zero.x = 1"),
    ]  # fmt: skip


@pytest.mark.parametrize("width", [80, 120])
def test_rows_wrap_inside_their_column_and_nothing_is_cut(width: int):
    model = ModelSettings(name="mixtral-8x7b")
    found = list(summary_rows(bill(model=model, gpu="T4", gpus=8, sharding="zero-3"), TRAINING))
    shown = printed([labelled(found)], width)
    lines = shown.splitlines()
    assert max(map(len, lines)) <= width
    assert [line[:10].strip() for line in lines if line[0] != " "] == [row.label for row in found]
    assert all(line.startswith(" " * 12) for line in lines if line[0] == " ")
    assert "".join(shown.split()) == "".join("".join(row[:2]) for row in found).replace(" ", "")


def test_batches_that_do_not_fit_in_shared_memory_are_said_so():
    machine = Machine(memory_bytes=1 << 40, shm_bytes=1 << 20)
    shown = rows(machine=machine, loader_workers=8, micro_batch=64)
    assert "does not fit in the 1.0 MiB of /dev/shm; fits with" in shown["host RAM"]
