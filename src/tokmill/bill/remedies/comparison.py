"""Comparison of alternatives: memory and verdict of each combination of settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, partial
from itertools import product
from typing import Any

from tokmill.bill.activations.situation import default_sequence
from tokmill.bill.bill_settings import BillSettings, complete_training
from tokmill.bill.gpus import DOES_NOT_FIT, find_gpu, gpu_verdict
from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Model
from tokmill.bill.remedies.advice import advise, advise_serving
from tokmill.bill.remedies.search import Limit, Offer, options
from tokmill.bill.serving import inference_bill
from tokmill.bill.trainers import as_trainer
from tokmill.bill.training_bill import training_bill
from tokmill.errors import UsageError
from tokmill.settings.load import build_config
from tokmill.settings.names import Setting, by_keyword, from_text
from tokmill.settings.schema import BILL_SECTIONS
from tokmill.settings.training import TrainingSettings

MOST_ROWS = 200


@dataclass(frozen=True, slots=True)
class Alternative:
    """A combination of settings, `values` in the order of the axes.

    `n_bytes` and `high_bytes` are the need of the fullest GPU, of training at the peak;
    `activation_bytes` the most that activations and logits take, which may be at another moment.
    `verdict` is "" without a GPU; `missing` names what the amounts lack. An impossible alternative
    has only `why_not`. Where no alternative fits, the one that misses least has a `plan`.
    """

    values: tuple[Any, ...]
    n_bytes: int = 0
    high_bytes: int = 0
    activation_bytes: int = 0
    verdict: str = ""
    missing: str = ""
    why_not: str = ""
    plan: tuple[Offer, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """Alternatives; `axes` are the settings in which they differ, `title` what they have in common.

    `kind` is "training" or "inference".
    """

    axes: tuple[str, ...]
    alternatives: tuple[Alternative, ...]
    title: str = ""
    kind: str = "training"

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        rows = [
            {**asdict(each), "values": dict(zip(self.axes, each.values, strict=True))}
            for each in self.alternatives
        ]
        return {"kind": self.kind, "axes": list(self.axes), "alternatives": rows}


HostLimit = Callable[[Model, TrainingSettings], Limit[TrainingSettings]]
"""Returns the limit of the host RAM that settings name."""


def compare(
    settings: BillSettings,
    axes: Mapping[str, Sequence[Any]],
    model: Model | None = None,
    host: HostLimit | None = None,
) -> Comparison:
    """Return all combinations of the axes' values; the last axis changes fastest.

    Args:
        settings: settings that no axis names; without a sequence, all alternatives have the
            shortest default of the models.
        axes: settings of model, training or inference by name, each with the values to compare.
        model: the model, unless the settings or an axis name models.
        host: returns the limit of host RAM that a plan must meet too; None: it is not looked at.

    Raises:
        UsageError: a setting or a value does not exist, there are over MOST_ROWS combinations, no
            model is named, or settings of training and of inference are to be compared together.
    """
    varied = {name: _setting(name) for name in axes}
    rows = list(product(*(_values(name, varied[name], axes[name]) for name in axes)))
    if len(rows) > MOST_ROWS:
        raise UsageError(f"compare: expected at most {MOST_ROWS} combinations, found {len(rows)}")
    kind = _kind(settings, varied.values())
    every = [settings] * len(rows)
    for setting, values in zip(varied.values(), zip(*rows, strict=True), strict=True):
        every = [_having(each, setting, value) for each, value in zip(every, values, strict=True)]
    load = cache(load_model)
    models = [model or load(each.model) for each in every]
    shortest = min(map(default_sequence, models))
    every = [_completed(each, kind, shortest) for each in every]
    alternatives = list(map(partial(_alternative, kind=kind), rows, every, models))
    possible = [each for each in alternatives if each.verdict]
    if possible and all(each.verdict == DOES_NOT_FIT for each in possible):
        least = alternatives.index(min(possible, key=lambda each: each.n_bytes))
        plan = _plan(every[least], models[least], kind, host)
        alternatives[least] = replace(alternatives[least], plan=plan)
    title = _title(every[0], models[0], axes, kind)
    return Comparison(tuple(axes), tuple(alternatives), title, kind)


def _plan(
    settings: BillSettings, model: Model, kind: str, host: HostLimit | None
) -> tuple[Offer, ...]:
    """Return what would make settings fit on their GPU, if anything would."""
    gpu, training = find_gpu(settings.training.gpu), settings.training
    if not model.has_shape:
        return ()
    if kind == "inference":
        how = settings.inference
        return advise_serving(
            model, how, gpu, context=training.sequence, host_bytes=training.host_ram
        ).plan
    return advise(model, training, gpu, *([host(model, training)] if host else [])).plan


def read_axes(texts: Iterable[str], training: TrainingSettings) -> dict[str, Sequence[Any]]:
    """Return the axes that options name: `gpu=T4,A10`; "" for the usual ones of training.

    Raises:
        UsageError: a setting is named without values.
    """
    axes: dict[str, Sequence[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not text:
            axes |= default_axes(training)
        elif equals:
            axes[name.strip().replace("-", "_")] = [each.strip() for each in values.split(",")]
        else:
            raise UsageError(f"compare: expected {text}=VALUE,VALUE, found no values")
    return axes


def default_axes(training: TrainingSettings) -> dict[str, Sequence[Any]]:
    """Return the axes precision (with several GPUs sharding), checkpointing and adapter."""
    axes: dict[str, Sequence[Any]] = {"sharding": ("ddp", "zero-1", "zero-2", "zero-3")}
    if training.gpus == 1:
        axes = {"precision": ("amp", "pure-16")}
    return {**axes, "checkpointing": ("none", "full"), "adapter": ("none", "lora", "qlora")}


def _setting(name: str) -> Setting:
    """Return a setting by its keyword argument."""
    known = by_keyword(BILL_SECTIONS)
    if name not in known:
        shown = ", ".join(known).replace("_", "-")
        raise UsageError(f"compare: no setting {name!r}; expected one of {shown}")
    return known[name]


def _values(name: str, setting: Setting, values: Sequence[Any]) -> tuple[Any, ...]:
    """Return checked values of a setting; text is read as that of its option."""
    if isinstance(values, str) or not isinstance(values, Iterable) or not list(values):
        raise UsageError(f"compare: {name}: expected a list of values, found {values!r}")
    checked = []
    for value in values:
        read = from_text(setting, value) if isinstance(value, str) else value
        contents = {setting.section: {setting.name: read}}
        config = build_config(contents, where=f"compare: {name}")
        checked.append(getattr(getattr(config, setting.section), setting.name))
    return tuple(checked)


def _having(settings: BillSettings, setting: Setting, value: Any) -> BillSettings:
    """Return the settings with another value of one; a trainer sets what is not given."""
    changed = replace(getattr(settings, setting.section), **{setting.name: value})
    if setting.name == "trainer":
        changed = as_trainer(changed, settings.given)
    return replace(settings, **{setting.section: changed})


def _kind(settings: BillSettings, varied: Iterable[Setting]) -> str:
    """Return whether training or inference is compared."""
    names = {each.section: each.keyword for each in varied if each.keyword != "gpu"}
    if "training" in names and "inference" in names:
        raise UsageError(
            "compare: expected settings of training or of inference, found "
            f"{names['training']} and {names['inference']}; compare each alone"
        )
    serves = "training" not in names and settings.serves and not settings.trains
    return "inference" if serves or "inference" in names else "training"


def _completed(settings: BillSettings, kind: str, default: int) -> BillSettings:
    """Return settings whose sequence, GPUs and, for inference, context are set."""
    training, inference = settings.training, settings.inference
    training = replace(training, sequence=training.sequence or default)
    training = complete_training(training, None, None)
    if kind == "inference":
        inference = replace(inference, context=inference.context or training.sequence)
    return replace(settings, training=training, inference=inference)


_ELSEWHERE = (
    "gpu", "mfu", "epochs", "tokens", "dataset_bytes", "with_masks", "price_per_hour",
    "checkpoints",
)  # fmt: skip
"""The GPU, and settings of time, cost and disk, which change no memory of a GPU."""


def _title(settings: BillSettings, model: Model, axes: Iterable[str], kind: str) -> str:
    """Return the model, the GPU and the options that all alternatives share."""
    how = getattr(settings, kind)
    changed = {
        field.name: getattr(how, field.name)
        for field in fields(how)
        if getattr(how, field.name) != field.default and field.name not in {*axes, *_ELSEWHERE}
    }
    parts = [f"GPU memory of {kind}", *options(changed)]
    gpu = settings.training.gpu
    parts += [f"on {find_gpu(gpu).name}"] if gpu and "gpu" not in axes else []
    return ("" if "model" in axes else f"{model.name}: ") + " ".join(parts)


def _alternative(
    values: tuple[Any, ...], settings: BillSettings, model: Model, *, kind: str
) -> Alternative:
    """Return a combination of values with its need."""
    training = settings.training
    gpu = find_gpu(training.gpu) if training.gpu else None
    try:
        if kind == "inference":
            bill = inference_bill(model, settings.inference, context=training.sequence, gpu=gpu)
            activation_bytes = 0
        else:
            whole = training_bill(model, training)
            bill, activation_bytes = whole.peak, whole.activation_bytes
    except UsageError as error:
        return Alternative(values, why_not=str(error))
    return Alternative(
        values,
        bill.n_bytes,
        bill.high_bytes,
        activation_bytes,
        verdict=gpu_verdict(bill, gpu) if gpu else "",
        missing=bill.missing,
    )
