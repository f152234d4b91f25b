"""Comparison of alternatives: the memory and the cost of each combination of settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from typing import Any

from tokmill.bill.activations.situation import default_sequence
from tokmill.bill.compute import operations_per_token
from tokmill.bill.gpus import Gpu, find_gpu
from tokmill.bill.models.model import Model
from tokmill.bill.remedies.advice import gpu_verdict, training_peak
from tokmill.bill.remedies.table import cost
from tokmill.errors import UsageError
from tokmill.settings.load import build_config
from tokmill.settings.training import TrainingSettings

AXES: Mapping[str, tuple[Any, ...]] = {
    "precision": ("fp32", "amp", "pure-16"),
    "optimizer": ("adamw", "adamw-8bit", "adafactor", "lion", "sgd"),
    "sharding": ("ddp", "zero-1", "zero-2", "zero-3", "fsdp"),
    "checkpointing": ("none", "selective", "full"),
    "adapter": ("none", "lora", "qlora"),
    "offload": ("none", "optimizer", "all"),
    "attention": ("flash", "eager"),
    "loss": ("full", "fused"),
    "micro_batch": (1, 2, 4, 8, 16, 32),
    "sequence": (512, 1024, 2048, 4096, 8192, 16384, 32768),
    "gpus": (1, 2, 4, 8, 16, 32, 64),
    "gpu": ("T4", "RTX 4090", "A100 40GB", "A100 80GB", "H100", "H200"),
}
"""Values that are compared if a setting is named without values."""
MOST_ROWS = 200


@dataclass(frozen=True, slots=True)
class Alternative:
    """A combination of settings, `values` in the order of the axes.

    `n_bytes`, `low_bytes` and `high_bytes` are the peak on the fullest GPU; `computation` is the
    computation of a token relative to the first alternative; `cost` is in words. `verdict` is ""
    without a GPU. An impossible alternative has only `why_not`.
    """

    values: tuple[Any, ...]
    n_bytes: int = 0
    low_bytes: int = 0
    high_bytes: int = 0
    verdict: str = ""
    computation: float = 0.0
    cost: str = ""
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Alternatives; `axes` are the settings in which they differ."""

    axes: tuple[str, ...]
    alternatives: tuple[Alternative, ...]

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        rows = [
            {**asdict(each), "values": dict(zip(self.axes, each.values, strict=True))}
            for each in self.alternatives
        ]
        return {"axes": list(self.axes), "alternatives": rows}


def compare(
    model: Model,
    training: TrainingSettings,
    gpu: Gpu | None,
    axes: Mapping[str, Sequence[Any]],
) -> Comparison:
    """Return all combinations of the axes' values; the last axis changes fastest.

    Args:
        model: the model of all alternatives.
        training: settings that no axis names.
        gpu: the GPU, unless an axis names GPUs.
        axes: training settings by name, each with the values to compare.

    Raises:
        UsageError: a setting or a value does not exist, or there are over MOST_ROWS combinations.
    """
    axes = {name: _values(name, values) for name, values in axes.items()}
    rows = list(product(*axes.values()))
    if len(rows) > MOST_ROWS:
        raise UsageError(f"compare: expected at most {MOST_ROWS} combinations, found {len(rows)}")
    training = replace(training, sequence=training.sequence or default_sequence(model))
    changed = [dict(zip(axes, row, strict=True)) for row in rows]
    unit = _operations(model, replace(training, **changed[0]))
    return Comparison(
        tuple(axes), tuple(_alternative(model, training, gpu, each, unit) for each in changed)
    )


def default_axes(training: TrainingSettings) -> dict[str, Sequence[Any]]:
    """Return the axes precision (with several GPUs sharding), checkpointing and adapter."""
    name = "precision" if training.gpus == 1 else "sharding"
    first = {"precision": ("amp", "pure-16"), "sharding": ("ddp", "zero-1", "zero-2", "zero-3")}
    return {name: first[name], "checkpointing": ("none", "full"), "adapter": AXES["adapter"]}


def read_axes(texts: Iterable[str], training: TrainingSettings) -> dict[str, Sequence[Any]]:
    """Return the axes that options name: `gpu=T4,A10`, `precision,adapter`, "" for the default.

    Raises:
        UsageError: a setting is named without values, and has no built-in ones.
    """
    axes: dict[str, Sequence[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not text:
            axes |= default_axes(training)
        elif equals:
            axes[name.strip().replace("-", "_")] = [each.strip() for each in values.split(",")]
        else:
            names = [each.strip().replace("-", "_") for each in text.split(",")]
            for unknown in (each for each in names if each not in AXES):
                known = ", ".join(AXES).replace("_", "-")
                raise UsageError(
                    f"compare: {unknown!r} has no built-in values: expected one of {known}, or "
                    "name=value,value"
                )
            axes |= {each: AXES[each] for each in names}
    return axes


def _values(name: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """Return checked values of a setting; numbers may be text."""
    known = [field.name for field in fields(TrainingSettings)]
    if name not in known:
        shown = ", ".join(known).replace("_", "-")
        raise UsageError(f"compare: no setting {name!r}; expected one of {shown}")
    if isinstance(values, str) or not isinstance(values, Iterable) or not list(values):
        raise UsageError(f"compare: {name}: expected a list of values, found {values!r}")
    found = []
    for value in values:
        is_number = isinstance(value, str) and value.isdecimal()
        section = {name: int(value) if is_number else value}
        config = build_config({"training": section}, where=f"compare: {name}")
        found.append(getattr(config.training, name))
    return tuple(found)


def _operations(model: Model, training: TrainingSettings) -> int:
    return sum(operations_per_token(model, training, training.sequence))


def _alternative(
    model: Model, training: TrainingSettings, gpu: Gpu | None, changes: dict[str, Any], unit: int
) -> Alternative:
    values = tuple(changes.values())
    training = replace(training, **changes)
    gpu = find_gpu(changes["gpu"]) if "gpu" in changes else gpu
    try:
        bill = training_peak(model, training)
    except UsageError as error:
        return Alternative(values, why_not=str(error))
    chosen = {name: value for name, value in changes.items() if isinstance(value, str)}
    return Alternative(
        values,
        bill.n_bytes,
        bill.low_bytes,
        bill.high_bytes,
        verdict="" if gpu is None else gpu_verdict(bill, gpu),
        computation=_operations(model, training) / unit,
        cost=cost(chosen),
    )
