"""Transformers' own arguments: each is read, refused, or listed."""

import dataclasses
import json

import pytest

from tokmill.bill.settings_files import read_training_arguments
from tokmill.errors import UsageError

pytest.importorskip("torch", reason="torch is not installed: make oracles")
transformers = pytest.importorskip("transformers", reason="transformers is missing: make oracles")


def test_an_argument_that_is_off_is_never_listed(tmp_path):
    path = tmp_path / "args.json"
    unknown = []
    for field in dataclasses.fields(transformers.TrainingArguments):
        path.write_text(json.dumps({field.name: False}), encoding="utf-8")
        try:
            unknown += read_training_arguments(path).not_read
        except UsageError as error:
            assert f"{field.name}: expected" in str(error)  # noqa: PT017 - one of many
    assert unknown == []


def test_the_dump_of_the_defaults_is_understood(tmp_path):
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), report_to=[])
    path = tmp_path / "args.json"
    path.write_text(arguments.to_json_string(), encoding="utf-8")
    found = read_training_arguments(path)
    assert found.training == {
        "micro_batch": 8, "accumulation": 1, "loader_workers": 0,
        "pin_memory": arguments.dataloader_pin_memory, "optimizer": "adamw",
        "optimizer_step": "fused", "checkpointing": "none", "epochs": 3.0, "precision": "fp32",
    }  # fmt: skip
    assert found.notes == ()
    assert {"learning_rate", "lr_scheduler_type", "seed"} <= set(found.not_read)
    assert not {"optim", "bf16", "fsdp", "deepspeed", "save_strategy"} & set(found.not_read)
