"""Settings of training from Transformers' TrainingArguments, as JSON or YAML.

The file is the output of `TrainingArguments.to_json_string()`, or the YAML of a training script
whose keys are those arguments. Keys and meanings are those of transformers 5.23 and trl 1.16.
"""

from __future__ import annotations

import math
from pathlib import Path

from tokmill.bill.settings_files import common
from tokmill.bill.settings_files.parse import parse_file
from tokmill.bill.settings_files.settings_file import ReadSettings, Row, SettingsFile
from tokmill.errors import UsageError

_LENGTHS = ("max_length", "max_seq_length", "block_size", "cutoff_len", "model_max_length")
_CHECKPOINTING = {True: "full", False: "none"}
_ROWS = (
    *common.COMMON,
    Row("per_device_train_batch_size", SettingsFile.integer, "micro_batch"),
    Row("eval_accumulation_steps", SettingsFile.count, "eval_accumulation"),
    Row(
        "dataloader_multiprocessing_context", SettingsFile.word, "start_method",
        {"fork": "fork", "spawn": "spawn"},
    ),
    *(Row(key, SettingsFile.count, "sequence") for key in _LENGTHS),
    Row("activation_checkpointing", SettingsFile.flag, "checkpointing", _CHECKPOINTING),
    Row("gradient_checkpointing", SettingsFile.flag, "checkpointing", _CHECKPOINTING),
    Row("parallelism_config.tp_size", SettingsFile.integer, "tensor_parallel"),
    Row("parallelism_config.cp_size", SettingsFile.integer, "context_parallel"),
)  # fmt: skip
_GPUS = ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size")
_NEEDED = {
    "micro_batch": "per_device_train_batch_size", "optimizer": "optim", "precision": "bf16",
}  # fmt: skip


def read_training_arguments(path: Path | str) -> ReadSettings:
    """Read Transformers' TrainingArguments from JSON or YAML, and the DeepSpeed file they name.

    Raises:
        UsageError: a file is missing or not an object, or a value has another type or range.
    """
    file = SettingsFile(Path(path), parse_file(Path(path)))
    if file.has("log_history"):
        raise UsageError(
            f"{path}: expected TrainingArguments, found the state of a trainer; "
            "write args.to_json_string() to a file"
        )
    file.read(_ROWS)
    if name := file.word("model_name_or_path"):
        file.model["name"] = name
    common.attention_settings(file)
    common.optimizer_settings(file, "optim")
    _read_loss(file)
    common.length_settings(file, "num_train_epochs")
    if file.table("parallelism_config") is not None:
        keys = [f"parallelism_config.{key}" for key in _GPUS]
        file.set("gpus", math.prod(file.count(key) or 1 for key in keys), keys[0])
    half = _read_precision(file)
    common.fsdp_settings(file, config_is_enough=False)
    common.follow_deepspeed(file, half)
    common.note_what_is_missing(file, _NEEDED)
    return file.result()


def _read_loss(file: SettingsFile) -> None:
    fused = file.flag("liger_kernel_config.fused_linear_cross_entropy") is not False
    if file.flag("use_liger_kernel"):
        file.set("loss", "fused" if fused else "full", "use_liger_kernel")
        file.notes.append("use_liger_kernel: its norms and SwiGLU save less than is counted")


def _read_precision(file: SettingsFile) -> str:
    """Return "bf16" or "fp16" where the trainer computes in it, else ""."""
    half = file.one_half([key for key in ("fp16", "bf16") if file.flag(key)])
    if half:
        file.set("precision", "amp", half)
        if file.get("deepspeed") is None:
            file.notes.append(
                f"{half}: autocast over weights in fp32; for a model loaded in 16 bit, add "
                "--precision=pure-16"
            )
    elif file.has("bf16") or file.has("fp16"):
        file.set("precision", "fp32", "bf16")
    return half
