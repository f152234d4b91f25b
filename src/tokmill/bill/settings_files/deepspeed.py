"""Settings of training from a DeepSpeed JSON.

Keys and defaults: https://www.deepspeed.ai/docs/config-json/. The type of gradients:
`get_data_types` in deepspeed/runtime/engine.py at edaa722.
"""

from __future__ import annotations

import math
from pathlib import Path

from tokmill.bill.settings_files.parse import parse_file
from tokmill.bill.settings_files.settings_file import ReadSettings, Row, SettingsFile, when
from tokmill.errors import UsageError

_HALVES = ("bf16", "bfloat16", "fp16")
_OPTIMIZERS = {
    "adam": ("adam", "fused"), "adamw": ("adamw", "fused"), "lion": ("lion", "fused"),
    "muon": ("muon", "foreach"), "sgd": ("sgd", "foreach"),
}  # fmt: skip
"""DeepSpeed steps Adam and Lion with kernels of its own."""
_STAGES = {0: "ddp", 1: "zero-1", 2: "zero-2", 3: "zero-3"}
_OFFLOADS = {
    "zero_optimization.offload_optimizer.device": "optimizer",
    "zero_optimization.offload_param.device": "all",
}
_ROWS = (
    Row("train_micro_batch_size_per_gpu", SettingsFile.integer, "micro_batch"),
    Row("gradient_accumulation_steps", SettingsFile.integer, "accumulation"),
    Row("tensor_parallel.autotp_size", SettingsFile.integer, "tensor_parallel"),
    Row(
        "activation_checkpointing.cpu_checkpointing", SettingsFile.flag,
        ("checkpointing", "activation_offload"), {True: ("full", True), False: (None, None)},
    ),
    when("zero_optimization.cpu_offload", "offload", "optimizer"),
    when("zero_optimization.cpu_offload_params", "offload", "all"),
    Row("optimizer.type", SettingsFile.choice, ("optimizer", "optimizer_step"), _OPTIMIZERS),
)  # fmt: skip
_ZERO = (
    Row("zero_optimization.stage", SettingsFile.integer, "sharding", _STAGES, refuse=True),
    *(
        Row(key, SettingsFile.word, "offload", {"none": None, "cpu": to, "nvme": to}, refuse=True)
        for key, to in _OFFLOADS.items()
    ),
)
_AUTO = (
    "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size",
    *(f"{half}.enabled" for half in _HALVES),
)  # fmt: skip
"""Keys that Hugging Face's Trainer fills in."""


def read_deepspeed(path: Path | str) -> ReadSettings:
    """Read a DeepSpeed JSON.

    Raises:
        UsageError: the file is missing or not a JSON object, a value has another type or range, or
            the batch sizes contradict each other or the number of GPUs.
    """
    file = SettingsFile(Path(path), parse_file(Path(path)))
    deepspeed_settings(file)
    autos = [key for key in _AUTO if file.is_auto(key)]
    if autos:
        file.notes.append(f"auto, so the option or tokmill's default holds: {', '.join(autos)}")
    return file.result()


def deepspeed_settings(file: SettingsFile, *, half: str | None = None) -> None:
    """Read a DeepSpeed table; it wins over what the trainer that names it has set in `file`.

    `half` is "bf16" or "fp16" where that trainer trains in it, "" where in neither: "auto" then
    means that. None: there is no trainer.
    """
    file.read(_ROWS)
    _check_batch(file)
    _read_precision(file, half)
    _read_steps(file)
    file.read(_ZERO)
    for key in _OFFLOADS:
        if file.word(key) == "nvme":
            file.notes.append(f"{file.shown(key)}: counted as host RAM, which then needs less")
    file.not_read += file.left()


def _check_batch(file: SettingsFile) -> None:
    """Check train_batch_size = micro batch x accumulation x GPUs, and derive a missing factor."""
    key = "train_batch_size"
    total = file.integer(key)
    if total is None:
        return
    factors = {name: file.training.get(name) for name in ("micro_batch", "accumulation", "gpus")}
    known = [value for value in factors.values() if value]
    missing = [name for name, value in factors.items() if not value]
    rest, remainder = divmod(total, math.prod(known))
    if remainder or (not missing and rest != 1):
        raise UsageError(
            f"{file.where(key)}: expected micro batch x accumulation x GPUs, "
            f"of which {' x '.join(map(str, known))} are known, found {total}"
        )
    if len(missing) == 1:
        file.set(missing[0], rest, key)
        if missing == ["gpus"]:
            file.notes.append(f"{file.shown(key)}: taken to mean {rest} GPUs")
    elif missing:
        only = f"of {', '.join(missing)} only one can follow from it"
        file.not_read.append(f"{file.shown(key)} ({only})")


def _read_precision(file: SettingsFile, half: str | None) -> None:
    tables = [key for key in _HALVES if file.table(key) is not None]
    on = [f"{key}.enabled" for key in tables if file.flag(f"{key}.enabled")]
    file.one_half(on)
    off = [key for key in tables if f"{key}.enabled" not in on]
    for key in off:
        file.ignore(key)
    gradients = file.word("data_types.grad_accum_dtype")
    if file.flag("torch_autocast.enabled"):
        file.set("precision", "amp", "torch_autocast")
    elif on or half:
        mixed = "mixed-18" if gradients in ("fp32", "float32") else "mixed-16"
        file.set("precision", mixed, "bf16")
    elif half is not None or not any(file.is_auto(f"{key}.enabled") for key in off):
        file.set("precision", "fp32", "bf16")  # DeepSpeed's own default.


def _read_steps(file: SettingsFile) -> None:
    """Read how the optimizer steps, and whether activations are checkpointed."""
    if file.training.get("optimizer") == "sgd" and file.number("optimizer.params.momentum"):
        file.training["optimizer"] = "momentum"
    if file.flag("optimizer.params.torch_adam"):
        file.training["optimizer_step"] = "foreach"
    key = "activation_checkpointing"
    if file.table(key) is not None:
        file.notes.append(
            f"{file.place}{key}: configures checkpointing, does not switch it on; if the model "
            "checkpoints, add --checkpointing=full"
        )
