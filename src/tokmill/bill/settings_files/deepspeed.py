"""Settings of training from a DeepSpeed JSON.

Keys and their defaults: https://www.deepspeed.ai/docs/config-json/; which type gradients have by
default: `get_data_types` in deepspeed/runtime/engine.py at edaa722.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tokmill.bill.settings_files.mapping import Findings, ReadSettings, Row, half_of, when
from tokmill.bill.settings_files.section import Section, read_section
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

_HALVES = ("bf16", "bfloat16", "fp16")
_STAGES = ("ddp", "zero-1", "zero-2", "zero-3")
_OPTIMIZERS = {
    "adam": ("adam", "fused"), "adamw": ("adamw", "fused"), "lion": ("lion", "fused"),
    "muon": ("muon", "foreach"), "sgd": ("sgd", "foreach"),
}  # fmt: skip
"""DeepSpeed steps Adam and Lion with kernels of its own."""
_ROWS = (
    Row("train_micro_batch_size_per_gpu", Section.whole, "micro_batch"),
    Row("gradient_accumulation_steps", Section.whole, "accumulation"),
    Row("tensor_parallel.autotp_size", Section.whole, "tensor_parallel"),
    Row(
        "activation_checkpointing.cpu_checkpointing", Section.flag,
        ("checkpointing", "activation_offload"), {True: ("full", True), False: (None, None)},
    ),
    when("zero_optimization.cpu_offload", "offload", "optimizer"),
    when("zero_optimization.cpu_offload_params", "offload", "all"),
    Row("optimizer.type", Section.choice, ("optimizer", "optimizer_step"), _OPTIMIZERS),
)  # fmt: skip
_AUTO = (
    "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size",
    *(f"{half}.enabled" for half in _HALVES),
)  # fmt: skip
"""Keys that Hugging Face's Trainer fills in."""


def read_deepspeed(path: Path | str) -> ReadSettings:
    """Read a DeepSpeed JSON.

    Raises:
        UsageError: the file is missing or no JSON object, a value has another type or range, or
            the batch sizes contradict each other or the number of GPUs.
    """
    found = Findings()
    section = read_section(path)
    deepspeed_settings(section, found)
    autos = [key for key in _AUTO if Section.is_auto(*section.at(key))]
    if autos:
        found.notes.append(f"auto, so the option or tokmill's default holds: {', '.join(autos)}")
    return found.settled(section)


def deepspeed_settings(section: Section, found: Findings, *, half: str | None = None) -> None:
    """Read a DeepSpeed table over what `found` holds of the trainer that names it.

    `half` is "bf16" or "fp16" where that trainer trains in it, "" where in neither: "auto" then
    means that. None: there is no trainer.
    """
    found.read(section, _ROWS)
    _check_batch(section, found)
    _read_precision(section, found, half)
    _read_steps(section, found)
    zero = section.section("zero_optimization")
    if zero is not None:
        _read_zero(zero, found)
    found.not_read += section.left()


def _check_batch(section: Section, found: Findings) -> None:
    """Check train_batch_size = micro batch x accumulation x GPUs, and derive a missing factor."""
    total, shown = section.whole("train_batch_size"), section.shown("train_batch_size")
    if total is None:
        return
    factors = {name: found.training.get(name) for name in ("micro_batch", "accumulation", "gpus")}
    known = [value for value in factors.values() if value]
    missing = [name for name, value in factors.items() if not value]
    rest, remainder = divmod(total, math.prod(known))
    if remainder or (not missing and rest != 1):
        raise UsageError(
            f"{section.where('train_batch_size')}: expected micro batch x accumulation x GPUs, "
            f"of which {' x '.join(map(str, known))} are known, found {total}"
        )
    if len(missing) == 1:
        found.set(missing[0], rest, section.where("train_batch_size"))
        if missing == ["gpus"]:
            found.notes.append(f"{shown}: taken to mean {rest} GPUs")
    elif missing:
        found.not_read.append(f"{shown} (of {', '.join(missing)} only one can follow from it)")


def _read_precision(section: Section, found: Findings, half: str | None) -> None:
    tables = {key: table for key in _HALVES if (table := section.section(key))}
    on = [key for key, table in tables.items() if table.flag("enabled")]
    half_of(section, [f"{key}.enabled" for key in on])
    off = [table for key, table in tables.items() if key not in on]
    for table in off:
        table.ignore()
    gradients = Section.word(*section.at("data_types.grad_accum_dtype"))
    if Section.flag(*section.at("torch_autocast.enabled")):
        found.set("precision", "amp", section.where("torch_autocast"))
    elif on or half:
        mixed = "mixed-18" if gradients in ("fp32", "float32") else "mixed-16"
        found.set("precision", mixed, section.where("bf16"))
    elif half is not None or not any(table.is_auto("enabled") for table in off):
        found.set("precision", "fp32", section.where("bf16"))  # DeepSpeed's own default.


def _read_steps(section: Section, found: Findings) -> None:
    """Read what decides about the optimizer's step, and how activations are checkpointed."""
    values, _ = section.at("optimizer.params.lr")
    if found.training.get("optimizer") == "sgd" and values.number("momentum"):
        found.training["optimizer"] = "momentum"
    if values.flag("torch_adam"):
        found.training["optimizer_step"] = "foreach"
    if section.section("activation_checkpointing"):
        found.notes.append(
            f"{section.place('activation_checkpointing')}: says how, not whether; if the model "
            "asks for it, add --checkpointing full"
        )


def _read_zero(zero: Section, found: Findings) -> None:
    stage = zero.whole("stage")
    if stage is not None:
        if not 0 <= stage < len(_STAGES):
            raise UsageError(f"{zero.where('stage')}: expected 0, 1, 2 or 3, found {stage}")
        found.set("sharding", _STAGES[stage], zero.where("stage"))
    for key, offload in (("offload_optimizer", "optimizer"), ("offload_param", "all")):
        table = zero.section(key)
        device = None if table is None else table.word("device")
        if table is None or device in (None, "none"):
            continue
        if device not in ("cpu", "nvme"):
            raise UsageError(
                f"{table.where('device')}: expected none, cpu or nvme, found {device!r}"
            )
        found.set("offload", offload, zero.where(key))
        if device == "nvme":
            shown = table.shown("device")
            found.notes.append(f"{shown}: counted as host RAM, which then needs less")
