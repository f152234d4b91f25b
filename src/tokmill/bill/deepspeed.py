"""Settings of training from a DeepSpeed JSON.

Keys and defaults: https://www.deepspeed.ai/docs/config-json/. The type of gradients:
`get_data_types` in deepspeed/runtime/engine.py at edaa722. A key is a path with dots, such as
`zero_optimization.stage`; null, an empty text and "auto" are as if the key were missing.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tokmill.errors import UsageError
from tokmill.opening import read_named
from tokmill.settings.training import TrainingSettings

T = TypeVar("T")
MOST_BYTES = 4 << 20
"""A settings file is some kB; what is larger is another file."""
MOST_SHOWN = 80

_INTEGERS = {
    "train_micro_batch_size_per_gpu": "micro_batch",
    "gradient_accumulation_steps": "accumulation",
    "tensor_parallel.autotp_size": "tensor_parallel",
}
_HALVES = ("bf16", "bfloat16", "fp16")
_OPTIMIZERS = {
    "adam": ("adam", "fused"), "adamw": ("adamw", "fused"), "lion": ("lion", "fused"),
    "muon": ("muon", "foreach"), "sgd": ("sgd", "foreach"),
}  # fmt: skip
"""Name -> optimizer and how it steps: DeepSpeed has kernels of its own for Adam and Lion."""
_STAGES = {0: "ddp", 1: "zero-1", 2: "zero-2", 3: "zero-3"}
_DEVICES = ("none", "cpu", "nvme")
_OFFLOADS = {
    "zero_optimization.offload_optimizer.device": "optimizer",
    "zero_optimization.offload_param.device": "all",
}
_AUTO = (*_INTEGERS, "train_batch_size", *(f"{half}.enabled" for half in _HALVES))
"""Keys that Hugging Face's Trainer fills in where they are "auto"."""

_OFF: tuple[object, ...] = (None, False, 0, -1, "", "no", "none", "auto", "off", [])
"""Values of a key that changes nothing; such a key is not listed as unread."""
_LIMITS = {item.name: item.metadata for item in dataclasses.fields(TrainingSettings)}


@dataclass(frozen=True, slots=True)
class DeepSpeedSettings:
    """The settings of training that a DeepSpeed file gives.

    Attributes:
        training: values for fields of `TrainingSettings`.
        notes: assumptions that were made.
        not_read: keys that the bill does not use; with the value where only this value is unknown.
    """

    training: dict[str, Any]
    notes: tuple[str, ...]
    not_read: tuple[str, ...]


def read_deepspeed(path: Path) -> DeepSpeedSettings:
    """Read a DeepSpeed JSON.

    Raises:
        UsageError: the file is missing or not a JSON object, a value has another type or range, or
            the batch sizes contradict each other.
    """
    file = _File(path, _parsed(path))
    for key, setting in _INTEGERS.items():
        file.set(setting, file.integer(key), key)
    _read_batch(file)
    _read_precision(file)
    _read_checkpointing(file)
    _read_optimizer(file)
    _read_zero(file)
    autos = [key for key in _AUTO if file.value(key) == "auto"]
    if autos:
        file.notes.append(f"auto, so the option or tokmill's default holds: {', '.join(autos)}")
    not_read = dict.fromkeys((*file.not_read, *file.unread(file.values, "")))
    return DeepSpeedSettings(file.training, tuple(file.notes), tuple(not_read))


def _read_batch(file: _File) -> None:
    """Check train_batch_size = micro batch x accumulation x GPUs, and derive the GPUs."""
    key = "train_batch_size"
    total = file.integer(key)
    if total is None:
        return
    known = [
        file.training[name] for name in ("micro_batch", "accumulation") if name in file.training
    ]
    rest, remainder = divmod(total, math.prod(known))
    if remainder:
        raise UsageError(
            f"{file.path}: {key}: expected micro batch x accumulation x GPUs, "
            f"of which {' x '.join(map(str, known))} are known, found {total}"
        )
    if len(known) == 2:
        file.set("gpus", rest, key)
        file.notes.append(f"{key}: {total}: taken to mean {rest} GPUs")
        return
    missing = [
        name for name in ("micro_batch", "accumulation", "gpus") if name not in file.training
    ]
    only = f"of {', '.join(missing)} only one can follow from it"
    file.not_read.append(f"{key}: {total} ({only})")


def _read_precision(file: _File) -> None:
    """Read the type of weights and gradients; fp32 is DeepSpeed's own default."""
    halves = [key for key in _HALVES if file.table(key)]
    on = [f"{key}.enabled" for key in halves if file.flag(f"{key}.enabled")]
    if len(on) > 1:
        raise UsageError(
            f"{file.path}: expected one 16-bit type, found both {on[0]} and {on[1]}; switch one off"
        )
    off = [key for key in halves if f"{key}.enabled" not in on]
    file.read |= {f"{key}.{name}" for key in off for name in file.table(key)}
    gradients = file.word("data_types.grad_accum_dtype")
    if file.flag("torch_autocast.enabled"):
        file.training["precision"] = "amp"
    elif on:
        mixed = "mixed-18" if gradients in ("fp32", "float32") else "mixed-16"
        file.training["precision"] = mixed
    elif not any(file.value(f"{key}.enabled") == "auto" for key in off):
        file.training["precision"] = "fp32"


def _read_checkpointing(file: _File) -> None:
    """Read where checkpoints of activations lie; the file does not say whether there are any."""
    key = "activation_checkpointing"
    if file.flag(f"{key}.cpu_checkpointing"):
        file.training |= {"checkpointing": "full", "activation_offload": True}
    if file.table(key):
        file.notes.append(
            f"{key}: configures checkpointing, does not switch it on; if the model "
            "checkpoints, add --checkpointing=full"
        )


def _read_optimizer(file: _File) -> None:
    """Read the optimizer and how it steps; one with states of other sizes is not read."""
    key, steps_in_torch = "optimizer.type", file.flag("optimizer.params.torch_adam")
    name = file.word(key)
    if name is None:
        return
    if name.lower() not in _OPTIMIZERS:
        file.not_read.append(f"{key}: {name}")
        return
    optimizer, step = _OPTIMIZERS[name.lower()]
    if optimizer == "sgd" and file.value("optimizer.params.momentum") not in _OFF:
        optimizer = "momentum"
    step = "foreach" if steps_in_torch else step
    file.training |= {"optimizer": optimizer, "optimizer_step": step}


def _read_zero(file: _File) -> None:
    """Read the stage, and what is offloaded: of two answers the larger."""
    key = "zero_optimization.stage"
    stage = file.integer(key)
    if stage is not None:
        if stage not in _STAGES:
            raise file.wrong(key, "0, 1, 2 or 3")
        file.training["sharding"] = _STAGES[stage]
    devices = set()
    for key, offload in _OFFLOADS.items():
        device = file.word(key)
        if device not in (None, *_DEVICES):
            raise file.wrong(key, "none, cpu or nvme")
        if device in ("cpu", "nvme"):
            file.training["offload"] = offload
            devices.add(device)
        if device == "nvme":
            file.notes.append(f"{key}: nvme: DeepSpeed's buffers in host RAM are not counted")
    if devices == {"nvme"}:
        file.training["offload_to"] = "nvme"


@dataclass(slots=True)
class _File:
    """A DeepSpeed file: its typed values, the settings they give, and the keys that were read."""

    path: Path
    values: Mapping[str, Any]
    training: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    not_read: list[str] = field(default_factory=list)
    read: set[str] = field(default_factory=set)

    def value(self, key: str) -> Any:
        """Return a value as the file has it; None: the key is missing."""
        self.read.add(key)
        parent, _, name = key.rpartition(".")
        table = self.table(parent) if parent else self.values
        return table.get(name)

    def table(self, key: str) -> Mapping[str, Any]:
        """Return a table; an empty one if the key is missing."""
        return self._typed(key, dict, "an object") or {}

    def integer(self, key: str) -> int | None:
        """Return a whole number, which may be written as 5e8."""
        value = self.value(key)
        if isinstance(value, float) and value.is_integer():
            return int(value)
        return self._typed(key, int, "a whole number")

    def flag(self, key: str) -> bool | None:
        """Return true or false."""
        return self._typed(key, bool, "true or false")

    def word(self, key: str) -> str | None:
        """Return a text."""
        value = self._typed(key, str, "text")
        return None if value is None else value.strip()

    def _typed(self, key: str, kind: type[T], expected: str) -> T | None:
        """Return a value of a type; None if the key is missing or "auto"."""
        value = self.value(key)
        if value in (None, "", "auto"):
            return None
        if type(value) is not kind:  # True is an int for isinstance
            raise self.wrong(key, expected)
        return value

    def set(self, setting: str, value: int | None, key: str) -> None:
        """Set a training setting to the value of `key`, unless it is None.

        Raises:
            UsageError: the value is outside the setting's range.
        """
        if value is None:
            return
        low, high = _LIMITS[setting]["minimum"], _LIMITS[setting]["maximum"]
        if not low <= value <= high:
            raise UsageError(
                f"{self.path}: {key}: expected between {low} and {high}, found {value}"
            )
        self.training[setting] = value

    def wrong(self, key: str, expected: str) -> UsageError:
        """Return the error of a value that is not as expected."""
        value = self.value(key)
        if isinstance(value, dict | list):
            shown = "a table" if isinstance(value, dict) else "a list"
        else:
            text = json.dumps(value)
            shown = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
        return UsageError(f"{self.path}: {key}: expected {expected}, found {shown}")

    def unread(self, table: Mapping[str, Any], place: str) -> Iterator[str]:
        """Yield the keys below `place` that were not read and change something.

        Without their values: one of them may be a password. A table of which nothing was read is
        one key.
        """
        for name, value in table.items():
            key = f"{place}{name}"
            if isinstance(value, dict) and any(read.startswith(f"{key}.") for read in self.read):
                yield from self.unread(value, f"{key}.")
            elif key not in self.read and _changes(value):
                yield key


def _changes(value: Any) -> bool:
    """Return whether a value, or one inside it, is not off."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif value not in _OFF:
            return True
    return False


def _parsed(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object; equal keys are an error.

    Raises:
        UsageError: the file is missing, unreadable, too large, not JSON, or not an object.
    """
    try:
        content = read_named(path, MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            most = f"{MOST_BYTES >> 20} MiB"
            raise UsageError(f"{path}: expected a DeepSpeed configuration, found more than {most}")
        value = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_unique)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such DeepSpeed configuration") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # also a name that no file can have
        raise UsageError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{path}: expected a DeepSpeed configuration, found no JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key, value in pairs:
        if key in table:
            raise ValueError(f"key {key!r} occurs twice")
        table[key] = value
    return table
