from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tokmill.bill.deepspeed import MOST_BYTES, DeepSpeedSettings, read_deepspeed
from tokmill.errors import UsageError


def read(tmp_path: Path, values: dict[str, Any]) -> DeepSpeedSettings:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    return read_deepspeed(path)


def test_a_whole_file_of_zero_3_with_offload(tmp_path):
    found = read(
        tmp_path,
        {
            "bf16": {"enabled": True},
            "zero_optimization": {
                "stage": 3,
                "offload_optimizer": {"device": "cpu", "pin_memory": True},
                "offload_param": {"device": "cpu", "pin_memory": True},
                "overlap_comm": True,
                "contiguous_gradients": True,
                "sub_group_size": 1e9,
                "reduce_bucket_size": 5e8,
                "stage3_gather_16bit_weights_on_model_save": True,
            },
            "optimizer": {"type": "AdamW", "params": {"lr": 3e-5, "betas": [0.9, 0.95]}},
            "gradient_clipping": 1.0,
            "gradient_accumulation_steps": 4,
            "train_micro_batch_size_per_gpu": 2,
            "train_batch_size": 64,
            "wall_clock_breakdown": False,
        },
    )
    assert found == DeepSpeedSettings(
        training={
            "micro_batch": 2, "accumulation": 4, "gpus": 8, "precision": "mixed-16",
            "optimizer": "adamw", "optimizer_step": "fused", "sharding": "zero-3", "offload": "all",
        },
        notes=("train_batch_size: 64: taken to mean 8 GPUs",),
        not_read=(
            "zero_optimization.offload_optimizer.pin_memory",
            "zero_optimization.offload_param.pin_memory",
            "zero_optimization.overlap_comm", "zero_optimization.contiguous_gradients",
            "zero_optimization.sub_group_size", "zero_optimization.reduce_bucket_size",
            "zero_optimization.stage3_gather_16bit_weights_on_model_save",
            "optimizer.params.lr", "optimizer.params.betas", "gradient_clipping",
        ),
    )  # fmt: skip


def test_auto_says_nothing_and_is_noted(tmp_path):
    found = read(
        tmp_path,
        {
            "train_micro_batch_size_per_gpu": "auto",
            "train_batch_size": "auto",
            "bf16": {"enabled": "auto"},
            "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"},
        },
    )
    assert found.training == {"sharding": "zero-2"}
    assert found.notes == (
        "auto, so the option or tokmill's default holds: "
        "train_micro_batch_size_per_gpu, train_batch_size, bf16.enabled",
    )


@pytest.mark.parametrize(
    ("values", "precision"),
    [
        ({}, "fp32"),
        ({"fp16": {"enabled": True, "loss_scale": 0}}, "mixed-16"),
        ({"bf16": {"enabled": False}, "fp16": {"enabled": False}}, "fp32"),
        ({"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}, "mixed-18"),
        ({"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "bf16"}}, "mixed-16"),
        ({"torch_autocast": {"enabled": True, "dtype": "bfloat16"}}, "amp"),
    ],
)
def test_the_precision_scheme(tmp_path, values, precision):
    assert read(tmp_path, values).training["precision"] == precision


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        ({"type": "Adam"}, ("adam", "fused")),
        ({"type": "AdamW", "params": {"torch_adam": True}}, ("adamw", "foreach")),
        ({"type": "Lion"}, ("lion", "fused")),
        ({"type": "SGD", "params": {"momentum": 0.9}}, ("momentum", "foreach")),
        ({"type": "SGD", "params": {"lr": 0.1}}, ("sgd", "foreach")),
    ],
)
def test_the_optimizer_and_its_step(tmp_path, optimizer, expected):
    found = read(tmp_path, {"optimizer": optimizer}).training
    assert (found["optimizer"], found["optimizer_step"]) == expected


def test_states_on_nvme_are_no_host_ram_and_buffers_are_noted(tmp_path):
    offload = {"device": "nvme", "nvme_path": "/local", "unheard_of": 1}
    found = read(tmp_path, {"zero_optimization": {"stage": 3, "offload_optimizer": offload}})
    assert found.training["offload_to"] == "nvme"
    assert found.notes == (
        "zero_optimization.offload_optimizer.device: nvme: DeepSpeed's buffers in host RAM are not "
        "counted",
    )
    assert found.not_read == (
        "zero_optimization.offload_optimizer.nvme_path",
        "zero_optimization.offload_optimizer.unheard_of",
    )


def test_keys_that_are_not_read_are_listed_with_their_path(tmp_path):
    found = read(
        tmp_path,
        {
            "optimizer": {"type": "OneBitAdam", "params": {"lr": 1e-4}},
            "communication_data_type": "fp32",
            "activation_checkpointing": {"partition_activations": True, "cpu_checkpointing": False},
            "fp16": {"enabled": True, "fp16_master_weights_and_grads": True},
            "zero_optimization": {
                "stage": 3,
                "reduce_bucket_size": 2e8,
                "stage3_max_live_parameters": 1e9,
                "stage3_prefetch_bucket_size": 0,
                "zero_quantized_weights": True,
                "zero_hpz_partition_size": 8,
                "offload_optimizer": {"device": "cpu", "ratio": 0.4},
                "brand_new": 1,
            },
            "sparse_attention": {"mode": "fixed"},
            "steps_per_print": 10,
        },
    )
    assert found.not_read == (
        "optimizer.type: OneBitAdam",
        "optimizer.params.lr",
        "communication_data_type",
        "activation_checkpointing.partition_activations",
        "fp16.fp16_master_weights_and_grads",
        "zero_optimization.reduce_bucket_size",
        "zero_optimization.stage3_max_live_parameters",
        "zero_optimization.zero_quantized_weights",
        "zero_optimization.zero_hpz_partition_size",
        "zero_optimization.offload_optimizer.ratio",
        "zero_optimization.brand_new",
        "sparse_attention",
        "steps_per_print",
    )
    assert "does not switch it on" in found.notes[0]


def test_batch_sizes_give_what_is_missing(tmp_path):
    batch = {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4}
    found = read(tmp_path, batch | {"gradient_accumulation_steps": 2})
    assert found.training["gpus"] == 8
    assert "accumulation" not in read(tmp_path, batch).training
    assert read(tmp_path, batch).not_read == (
        "train_batch_size: 64 (of accumulation, gpus only one can follow from it)",
    )


def test_batch_sizes_that_contradict_each_other_are_refused(tmp_path):
    batch = {
        "train_batch_size": 64,
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 3,
    }
    with pytest.raises(UsageError) as caught:
        read(tmp_path, batch)
    assert str(caught.value) == (
        f"{tmp_path / 'ds.json'}: train_batch_size: expected micro batch x accumulation x GPUs, "
        "of which 4 x 3 are known, found 64"
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"zero_optimization": {"stage": 4}}, "zero_optimization.stage: expected 0, 1, 2 or 3, "
                                              "found 4"),
        ({"zero_optimization": 3}, "zero_optimization: expected an object, found 3"),
        ({"zero_optimization": {"stage": 3, "offload_param": {"device": "disk"}}},
         "zero_optimization.offload_param.device: expected none, cpu or nvme, found \"disk\""),
        ({"train_micro_batch_size_per_gpu": 0},
         "train_micro_batch_size_per_gpu: expected between 1 and 16777216, found 0"),
        ({"gradient_accumulation_steps": 1.5},
         "gradient_accumulation_steps: expected a whole number, found 1.5"),
        ({"gradient_accumulation_steps": "eight"},
         "gradient_accumulation_steps: expected a whole number, found \"eight\""),
        ({"train_batch_size": [1]}, "train_batch_size: expected a whole number, found a list"),
        ({"train_batch_size": float("nan")},
         "train_batch_size: expected a whole number, found NaN"),
        ({"bf16": {"enabled": 2}}, "bf16.enabled: expected true or false, found 2"),
        ({"optimizer": {"type": 3}}, "optimizer.type: expected text, found 3"),
        ({"optimizer": {"type": {"a": 1}}}, "optimizer.type: expected text, found a table"),
        ({"train_batch_size": "x" * 500},
         f"train_batch_size: expected a whole number, found \"{'x' * 79}…"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_one_line(tmp_path, values, message):
    with pytest.raises(UsageError) as caught:
        read(tmp_path, values)
    assert str(caught.value) == f"{tmp_path / 'ds.json'}: {message}"


def test_both_16_bit_types_are_refused_with_their_keys(tmp_path):
    with pytest.raises(UsageError) as caught:
        read(tmp_path, {"fp16": {"enabled": True}, "bf16": {"enabled": True}})
    assert str(caught.value) == (
        f"{tmp_path / 'ds.json'}: expected one 16-bit type, found both bf16.enabled and "
        "fp16.enabled; switch one off"
    )


def test_checkpoints_of_activations_may_lie_in_host_ram(tmp_path):
    found = read(tmp_path, {"activation_checkpointing": {"cpu_checkpointing": True}})
    assert (found.training["checkpointing"], found.training["activation_offload"]) == ("full", True)
    assert found.not_read == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not valid JSON: Expecting property name enclosed in double quotes"),
        (b"[1]", "expected a DeepSpeed configuration, found no JSON object"),
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "not valid JSON: key 'c' occurs twice"),
        (b"\x80\x04\x95\xff", "not valid JSON: 'utf-8' codec can't decode"),
        (b'{"a": ' * 100_000, "not valid JSON: maximum recursion depth exceeded"),
        (b" " * (MOST_BYTES + 1), "expected a DeepSpeed configuration, found more than 4 MiB"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "ds.json").write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read_deepspeed(tmp_path / "ds.json")
    assert str(caught.value).startswith(f"{tmp_path / 'ds.json'}: {message}")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_missing_or_a_directory_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.json: no such DeepSpeed configuration$"):
        read_deepspeed(tmp_path / "gone.json")
    with pytest.raises(UsageError, match=r"cannot be read: Is a directory$"):
        read_deepspeed(tmp_path)


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_bytes(b'\xef\xbb\xbf{"gradient_accumulation_steps": 8}')
    assert read_deepspeed(tmp_path / "ds.json").training["accumulation"] == 8
