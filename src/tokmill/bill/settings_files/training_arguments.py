"""Settings of training from Transformers' TrainingArguments, as JSON or YAML.

The file is what `TrainingArguments.to_json_string()` gives, or the YAML of a training script whose
keys are those arguments. Keys and meanings are those of transformers 5.23 and trl 1.16.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tokmill.bill.settings_files import common
from tokmill.bill.settings_files.mapping import Findings, ReadSettings, Row, half_of
from tokmill.bill.settings_files.section import Section, read_section
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

_LENGTHS = ("max_length", "max_seq_length", "block_size", "cutoff_len", "model_max_length")
_CHECKPOINTING = {True: "full", False: "none"}
_ROWS = (
    *common.COMMON,
    Row("per_device_train_batch_size", Section.whole, "micro_batch"),
    Row("eval_accumulation_steps", Section.count, "eval_accumulation"),
    Row(
        "dataloader_multiprocessing_context", Section.word, "start_method",
        {"fork": "fork", "spawn": "spawn"},
    ),
    *(Row(key, Section.count, "sequence") for key in _LENGTHS),
    Row("activation_checkpointing", Section.flag, "checkpointing", _CHECKPOINTING),
    Row("gradient_checkpointing", Section.flag, "checkpointing", _CHECKPOINTING),
    Row("parallelism_config.tp_size", Section.whole, "tensor_parallel"),
    Row("parallelism_config.cp_size", Section.whole, "context_parallel"),
)  # fmt: skip
_NEEDED = {
    "micro_batch": "per_device_train_batch_size", "optimizer": "optim", "precision": "bf16",
}  # fmt: skip


def read_training_arguments(path: Path | str) -> ReadSettings:
    """Read Transformers' TrainingArguments from JSON or YAML, and the DeepSpeed file they name.

    Raises:
        UsageError: a file is missing or no object, or a value has another type or range.
    """
    section, found = read_section(path), Findings()
    if section.has("log_history"):
        raise UsageError(
            f"{path}: expected TrainingArguments, found the state of a trainer; "
            "write args.to_json_string() to a file"
        )
    found.read(section, _ROWS)
    name = section.word("model_name_or_path")
    if name:
        found.model["name"] = name
    common.attention_settings(section, found)
    common.optimizer_settings(section, "optim", found)
    _read_loss(section, found)
    common.length_settings(section, "num_train_epochs", found)
    _read_gpus(section, found)
    half = _read_precision(section, found)
    common.fsdp_settings(section, found, config_is_enough=False)
    common.follow_deepspeed(section, found, half)
    common.note_what_is_missing(section, found, _NEEDED)
    return found.settled(section)


def _read_loss(section: Section, found: Findings) -> None:
    kernels = section.at("liger_kernel_config.fused_linear_cross_entropy")
    chosen = Section.flag(*kernels)
    if section.flag("use_liger_kernel"):
        fused = chosen is not False
        found.set("loss", "fused" if fused else "full", section.where("use_liger_kernel"))
        found.notes.append("use_liger_kernel: its norms and SwiGLU save less than is counted")


def _read_gpus(section: Section, found: Findings) -> None:
    """Return the number of GPUs that the sizes multiply to."""
    sizes = section.section("parallelism_config")
    if sizes is None:
        return
    keys = ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size")
    found.set("gpus", math.prod(sizes.count(key) or 1 for key in keys), sizes.where(keys[0]))


def _read_precision(section: Section, found: Findings) -> str:
    """Return "bf16" or "fp16" where the trainer computes in it."""
    half = half_of(section, [key for key in ("fp16", "bf16") if section.flag(key)])
    if half:
        found.set("precision", "amp", section.where(half))
        if section.get("deepspeed") is None:
            found.notes.append(
                f"{half}: autocast over weights in fp32; for a model loaded in 16 bit, add "
                "--precision pure-16"
            )
    elif section.has("bf16") or section.has("fp16"):
        found.set("precision", "fp32", section.where("bf16"))
    return half
