"""Settings of training from Transformers' TrainingArguments, as JSON or YAML.

The file is what `TrainingArguments.to_json_string()` gives, or the YAML of a training script whose
keys are those arguments. Keys and meanings are those of transformers 5.23.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.bill.settings_files import common
from tokmill.bill.settings_files.common import fsdp_settings
from tokmill.bill.settings_files.section import Findings, ReadSettings, Section, read_section
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

_NAMED = {
    "per_device_train_batch_size": ("micro_batch", Section.whole),
    "gradient_accumulation_steps": ("accumulation", Section.whole),
    "dataloader_num_workers": ("loader_workers", Section.whole),
    "dataloader_prefetch_factor": ("prefetch", Section.whole),
    "dataloader_pin_memory": ("pin_memory", Section.flag),
}
_NEEDED = {
    "micro_batch": "per_device_train_batch_size", "optimizer": "optim", "precision": "bf16",
}  # fmt: skip
_SEQUENCE = ("max_length", "max_seq_length", "block_size", "cutoff_len", "model_max_length")
_CHECKPOINTING = ("gradient_checkpointing", "activation_checkpointing")


def read_training_arguments(path: Path | str) -> ReadSettings:
    """Read Transformers' TrainingArguments from JSON or YAML, and the DeepSpeed file they name.

    Raises:
        UsageError: a file is missing or no object, or a value has another type or range.
    """
    section = read_section(path)
    if section.has("log_history"):
        raise UsageError(
            f"{path}: expected TrainingArguments, found the state of a trainer; "
            "write args.to_json_string() to a file"
        )
    found = Findings()
    training_arguments(section, found)
    return found.settled()


def training_arguments(section: Section, found: Findings) -> None:
    """Read a table of TrainingArguments."""
    common.named_settings(section, found, _NAMED)
    _read_start_method(section, found)
    _read_model(section, found)
    common.optimizer_settings(section, "optim", found)
    _read_checkpointing(section, found)
    _read_liger(section, found)
    common.length_settings(section, "num_train_epochs", found)
    _read_evaluation(section, found)
    _read_parallelism(section, found)
    half = _read_precision(section, found)
    fsdp_settings(section, found, config_is_enough=False)
    common.follow_deepspeed(section, found, half)
    found.not_read += section.left()
    common.note_what_is_missing(section, found, _NEEDED)


def _read_start_method(section: Section, found: Findings) -> None:
    key = "dataloader_multiprocessing_context"
    method = section.word(key)
    if method in ("fork", "spawn"):
        found.set("start_method", method, section.where(key))
    elif method:
        found.not_read.append(section.said(key))


def _read_model(section: Section, found: Findings) -> None:
    """Read what scripts and TRL keep beside the arguments."""
    name = section.word("model_name_or_path")
    if name:
        found.model["name"] = name
    for key in _SEQUENCE:
        found.set("sequence", section.count(key), section.where(key))
    common.attention_settings(section, "attn_implementation", found)


def _read_checkpointing(section: Section, found: Findings) -> None:
    for key in _CHECKPOINTING:
        flag = section.flag(key)
        if flag is not None and found.training.get("checkpointing") != "full":
            found.set("checkpointing", "full" if flag else "none", section.where(key))
        options = section.section(f"{key}_kwargs")
        if options is not None:
            found.not_read += options.left()


def _read_liger(section: Section, found: Findings) -> None:
    flag = section.flag("use_liger_kernel")
    options = section.section("liger_kernel_config")
    chosen = None if options is None else options.flag("fused_linear_cross_entropy")
    if flag:
        fused = chosen is not False
        found.set("loss", "fused" if fused else "full", section.where("use_liger_kernel"))
        found.notes.append("use_liger_kernel: its norms and SwiGLU save less than is counted")


def _read_evaluation(section: Section, found: Findings) -> None:
    batch = section.count("per_device_eval_batch_size")
    strategy = section.choice("eval_strategy")
    if batch and strategy not in (None, "no") and batch > found.training.get("micro_batch", 1):
        found.not_read.append(section.said("per_device_eval_batch_size"))


def _read_parallelism(section: Section, found: Findings) -> None:
    accelerator = section.section("accelerator_config")
    if accelerator is not None:
        found.not_read += accelerator.left()
    sizes = section.section("parallelism_config")
    if sizes is None:
        return
    found.set("tensor_parallel", sizes.whole("tp_size"), sizes.where("tp_size"))
    found.set("context_parallel", sizes.whole("cp_size"), sizes.where("cp_size"))
    gpus = 1
    for key in ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size"):
        gpus *= sizes.count(key) or 1
    found.set("gpus", gpus, sizes.where("dp_shard_size"))
    if sizes.count("sp_size") not in (None, 1):
        found.not_read.append(sizes.said("sp_size"))
    found.not_read += sizes.left()


def _read_precision(section: Section, found: Findings) -> str:
    """Return "bf16" or "fp16" where the trainer computes in it."""
    half = "".join([key for key in ("fp16", "bf16") if section.flag(key)][:1])
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
