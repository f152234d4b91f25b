"""Settings of training from a DeepSpeed JSON.

Keys and their defaults: https://www.deepspeed.ai/docs/config-json/; which type gradients have by
default: `get_data_types` in deepspeed/runtime/engine.py at edaa722.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.bill.settings_files.section import Findings, ReadSettings, Section, read_section
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

_BATCHES = {
    "train_micro_batch_size_per_gpu": "micro_batch",
    "gradient_accumulation_steps": "accumulation",
}
_STAGES = ("ddp", "zero-1", "zero-2", "zero-3")
_HALVES = ("bf16", "bfloat16", "fp16")
_OPTIMIZERS = {
    "adam": "adam", "adamw": "adamw", "lion": "lion", "muon": "muon", "sgd": "sgd",
}  # fmt: skip
_ZERO_DEFAULTS = {
    "reduce_bucket_size": 5e8, "allgather_bucket_size": 5e8, "sub_group_size": 1e9,
    "prefetch_bucket_size": 5e7, "stage3_prefetch_bucket_size": 5e7,
    "param_persistence_threshold": 1e5, "stage3_param_persistence_threshold": 1e5,
    "max_live_parameters": 1e9, "stage3_max_live_parameters": 1e9,
    "max_reuse_distance": 1e9, "stage3_max_reuse_distance": 1e9,
}  # fmt: skip
"""Elements, as DeepSpeed has them and the formulas assume; other values are not modelled."""


def read_deepspeed(path: Path | str, *, gpus: int = 0) -> ReadSettings:
    """Read a DeepSpeed JSON. `gpus` (0: not known) is what its train_batch_size counts on.

    Raises:
        UsageError: the file is missing or no JSON object, a value has another type or range, or
            the batch sizes contradict each other or the number of GPUs.
    """
    found = Findings()
    section = read_section(path)
    deepspeed_settings(section, found, gpus=gpus)
    autos = [key for key in (*_BATCHES, "train_batch_size") if section.is_auto(key)]
    if autos:
        found.notes.append(f"auto, so the option or tokmill's default holds: {', '.join(autos)}")
    return found.settled()


def deepspeed_settings(
    section: Section, found: Findings, *, half: str | None = None, gpus: int = 0
) -> None:
    """Read a DeepSpeed table over what `found` holds of the trainer that names it.

    `half` is "bf16" or "fp16" where that trainer trains in it, "" where in neither: "auto" then
    means that. None: there is no trainer.
    """
    for key, name in _BATCHES.items():
        found.set(name, section.whole(key), section.where(key))
    _check_batch(section, found, gpus)
    _read_precision(section, found, half)
    _read_optimizer(section, found)
    zero = section.section("zero_optimization")
    if zero is not None:
        _read_zero(zero, found)
    parallel = section.section("tensor_parallel")
    if parallel is not None:
        found.set("tensor_parallel", parallel.whole("autotp_size"), parallel.where("autotp_size"))
        found.not_read += parallel.left()
    _read_checkpointing(section, found)
    found.not_read += section.left()


def _check_batch(section: Section, found: Findings, gpus: int) -> None:
    """Check train_batch_size = micro batch x accumulation x GPUs, and derive a missing factor."""
    total = section.whole("train_batch_size")
    if total is None:
        return
    micro = found.training.get("micro_batch")
    steps = found.training.get("accumulation")
    where = section.where("train_batch_size")
    known = [value for value in (micro, steps, gpus) if value]
    product = 1
    for value in known:
        product *= value
    if total % product or (len(known) == 3 and total != product):
        parts = " x ".join(map(str, known))
        raise UsageError(
            f"{where}: expected micro batch x accumulation x GPUs, of which {parts} are known, "
            f"found {total}"
        )
    if not gpus and micro and steps:
        found.set("gpus", total // product, where)
        found.notes.append(
            f"{section.said('train_batch_size')}: taken to mean {total // product} GPUs"
        )
    elif gpus and micro:
        found.set("accumulation", total // product, where)
    elif gpus:
        found.set("micro_batch", total // product, where)
    else:
        found.not_read.append(f"{section.said('train_batch_size')} (of how many GPUs is not known)")


def _read_precision(section: Section, found: Findings, half: str | None) -> None:
    gradients = _gradient_type(section, found)
    tables = {key: section.section(key) for key in _HALVES}
    for key, table in tables.items():
        if table is None:
            continue
        if table.is_auto("enabled") and half is None:
            found.notes.append(f"{table.said('enabled')}, so the option or tokmill's default holds")
            return
        if table.flag("enabled"):
            half = key
            found.not_read += table.left()
    autocast = section.section("torch_autocast")
    if autocast is not None and autocast.flag("enabled"):
        found.set("precision", "amp", autocast.where("enabled"))
    elif half:
        mixed = "mixed-18" if gradients in ("fp32", "float32") else "mixed-16"
        found.set("precision", mixed, section.where(half))
    else:
        found.set("precision", "fp32", section.where("bf16"))  # DeepSpeed's own default.


def _gradient_type(section: Section, found: Findings) -> str | None:
    table = section.section("data_types")
    if table is None:
        return None
    kind = table.word("grad_accum_dtype")
    found.not_read += table.left()
    return kind


def _read_optimizer(section: Section, found: Findings) -> None:
    table = section.section("optimizer")
    name = None if table is None else table.word("type")
    if table is None or name is None:
        return
    values = table.section("params")
    optimizer = _OPTIMIZERS.get(name.lower())
    if optimizer is None:
        found.not_read.append(table.said("type"))
        return
    if optimizer == "sgd" and values is not None and values.number("momentum"):
        optimizer = "momentum"
    from_torch = values is not None and values.flag("torch_adam")
    own_kernel = optimizer in ("adam", "adamw", "lion") and not from_torch
    found.set("optimizer", optimizer, table.where("type"))
    found.set("optimizer_step", "fused" if own_kernel else "foreach", table.where("type"))


def _read_zero(zero: Section, found: Findings) -> None:
    stage = zero.whole("stage")
    if stage is not None:
        if not 0 <= stage < len(_STAGES):
            raise UsageError(f"{zero.where('stage')}: expected 0, 1, 2 or 3, found {stage}")
        found.set("sharding", _STAGES[stage], zero.where("stage"))
    if _is_offloaded(zero, "offload_optimizer", "cpu_offload", found):
        found.set("offload", "optimizer", zero.where("offload_optimizer"))
    if _is_offloaded(zero, "offload_param", "cpu_offload_params", found):
        found.set("offload", "all", zero.where("offload_param"))
    for key, default in _ZERO_DEFAULTS.items():
        if zero.number(key) not in (None, default):
            found.not_read.append(zero.said(key))
    autos = [zero.place(key) for key in _ZERO_DEFAULTS if zero.is_auto(key)]
    if autos:
        found.notes.append(f"auto, counted with DeepSpeed's defaults: {', '.join(autos)}")
    found.not_read += zero.left()


def _is_offloaded(zero: Section, key: str, old_key: str, found: Findings) -> bool:
    old = bool(zero.flag(old_key))
    table = zero.section(key)
    device = "none" if table is None else table.word("device") or "none"
    if table is None or device == "none":
        return old
    if device == "nvme":
        found.notes.append(f"{table.said('device')}: counted as host RAM, which then needs less")
    elif device != "cpu":
        raise UsageError(f"{table.where('device')}: expected none, cpu or nvme, found {device!r}")
    if table.number("ratio") not in (None, 1.0):
        found.not_read.append(table.said("ratio"))
    found.not_read += table.left()
    return True


def _read_checkpointing(section: Section, found: Findings) -> None:
    table = section.section("activation_checkpointing")
    if table is None:
        return
    found.notes.append(
        f"{section.place('activation_checkpointing')}: says how, not whether; if the model asks "
        "for it, add --checkpointing full"
    )
    found.not_read += table.left()
