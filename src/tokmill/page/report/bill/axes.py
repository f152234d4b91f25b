"""The choices of the page's bill: models, GPUs, sharding, batches, sequences, and remedies."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

from tokmill.bill.activations.situation import default_sequence
from tokmill.bill.bill_settings import BillSettings
from tokmill.bill.gpus import Gpu, find_gpu
from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Model
from tokmill.bill.remedies.savings import Case, of_training, options
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings
from tokmill.words.plural import plural

MOST_MODELS = 4
LINES = (
    ("minimind2-small", "minimind-3", "minimind2"),
    ("tinyllama-1.1b", "llama-2-7b", "llama-2-13b", "llama-2-70b"),
    ("smollm2-135m", "smollm2-360m", "smollm2-1.7b"),
    ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"),
    ("pythia-160m", "pythia-410m", "pythia-1.4b", "pythia-6.9b"),
    ("chatglm3-6b", "falcon-7b", "falcon-40b"),
    ("olmo-2-1b", "olmo-2-7b", "olmo-2-13b", "olmo-2-32b"),
    ("llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b", "llama-3.1-70b"),
    ("qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-7b", "qwen2.5-32b"),
    ("qwen3-0.6b", "qwen3-1.7b", "qwen3-8b", "qwen3-32b"),
    ("gemma-3-270m", "gemma-3-1b", "gemma-3-4b", "gemma-3-12b"),
)
"""Built-in models from small to large, the smallest vocabulary first."""
GPUS = ("T4", "RTX 4090", "A6000", "A100 80GB", "H100 SXM", "H200")
MOST_GPUS = 6
BATCHES = (1, 2, 4, 8)
SEQUENCES = (512, 1024, 2048, 4096)
SEVERAL_GPUS = 8
"""GPUs of the cases with several, where the settings have one."""

Steps = tuple[tuple[str, int], ...]
REMEDIES: tuple[tuple[str, Steps], ...] = (
    ("full checkpointing", (("activation checkpointing", -1),)),
    ("fused step and loss", (("fused optimizer step", 0), ("fused loss", 0))),
    ("8-bit optimizer", (("8-bit optimizer states", 0),)),
    (
        "checkpointing, fused and 8-bit",
        (
            ("activation checkpointing", -1),
            ("fused optimizer step", 0),
            ("fused loss", 0),
            ("8-bit optimizer states", 0),
        ),
    ),
    ("optimizer in host RAM", (("offload", 0),)),
    ("LoRA", (("LoRA", 0),)),
    ("QLoRA", (("QLoRA", 0),)),
)
"""Alternatives: remedies by name, applied one after the other, each with one of its candidates."""


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model, and the options that choose it."""

    model: Model
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """A number of GPUs and how they share the model."""

    label: str
    gpus: int
    sharding: str


@dataclass(frozen=True, slots=True)
class Axes:
    """The values of each choice; `start` are the indices of the case that is shown first.

    `training`: all settings that no choice changes. `gpu_names`: of the GPUs, as settings give
    them. `chosen`: whether the settings name a model, and a GPU; else the page chose.
    """

    training: TrainingSettings
    models: tuple[NamedModel, ...]
    gpus: tuple[Gpu, ...]
    gpu_names: tuple[str, ...]
    spreads: tuple[Spread, ...]
    batches: tuple[int, ...]
    sequences: tuple[int, ...]
    remedies: tuple[tuple[str, Steps], ...]
    start: tuple[int, int, int, int, int]
    chosen: tuple[bool, bool]


def place(indices: Sequence[int], lengths: Sequence[int]) -> int:
    """Return the place of a case in a table whose last choice changes fastest."""
    found = 0
    for index, length in zip(indices, lengths, strict=True):
        found = found * length + index
    return found


def axes_of(settings: BillSettings, model: Model | None, vocabulary: int) -> Axes:
    """Return the choices near the settings of a bill, which must be settled.

    Args:
        settings: the settings of the bill; their own case is one of the cases.
        model: their model; None: models are chosen by the vocabulary.
        vocabulary: ids of the dataset's tokenizer; 0: not known.
    """
    models = near_models(model, settings.model, vocabulary)
    first = 0 if model is None else [each.model for each in models].index(model)
    training = settings.training
    if model is None and 0 < models[0].model.positions < training.sequence:
        training = replace(training, sequence=default_sequence(models[0].model))
    named = bool(training.gpu)
    gpu = find_gpu(training.gpu if named else _least_gpu(models[first].model))
    gpus = near_gpus(gpu)
    names = tuple(training.gpu if named and each == gpu else each.name for each in gpus)
    spreads = spreads_of(training)
    batches = near(training.micro_batch, BATCHES)
    sequences = near(training.sequence, SEQUENCES)
    case = Case(models[first].model, training)
    start = (
        first,
        gpus.index(gpu),
        [(each.gpus, each.sharding) for each in spreads].index((training.gpus, training.sharding)),
        batches.index(training.micro_batch),
        sequences.index(training.sequence),
    )
    applying = tuple(each for each in REMEDIES if applied(case, each[1]) is not None)
    return Axes(
        training, models, gpus, names, spreads, batches, sequences, applying, start,
        (model is not None, named),
    )  # fmt: skip


def near_models(
    model: Model | None, settings: ModelSettings, vocabulary: int
) -> tuple[NamedModel, ...]:
    """Return a model and built-in ones whose embedding is about as large, by their size.

    Without a model, built-in ones that have an embedding for `vocabulary` ids.
    """
    names = _line_for(vocabulary if model is None else model.vocabulary)
    found = [_built_in(name) for name in names if model is None or name != model.name]
    if model is not None:
        found.sort(key=lambda each: abs(math.log(each.model.parameters / model.parameters)))
        found = [NamedModel(model, _model_options(settings)), *found[: MOST_MODELS - 1]]
    return tuple(sorted(found, key=lambda each: each.model.parameters))


def near_gpus(gpu: Gpu) -> tuple[Gpu, ...]:
    """Return a GPU and others of all sizes, by their memory."""
    known = [find_gpu(name) for name in GPUS]
    if gpu in known:
        return tuple(known)
    known.remove(min(known, key=lambda each: abs(each.memory_bytes - gpu.memory_bytes)))
    return tuple(sorted([*known, gpu], key=lambda each: each.memory_bytes))


def near(n: int, usual: Sequence[int]) -> tuple[int, ...]:
    """Return a number and as many usual ones as make it four: the nearest ones by their ratio."""
    if n in usual:
        return tuple(usual)
    others = sorted(usual, key=lambda each: abs(math.log(each / n)))
    return tuple(sorted([n, *others[: len(usual) - 1]]))


def spreads_of(training: TrainingSettings) -> tuple[Spread, ...]:
    """Return one GPU, and several with each kind of sharding; that of the settings is one of them.

    The number of several GPUs is that of the settings, if they have several.
    """
    several = training.gpus if training.gpus > 1 else SEVERAL_GPUS
    kinds = ["ddp", "zero-2", "zero-3"]
    if training.framework == "megatron":
        kinds = ["ddp", "distributed-optimizer"]
    pairs = [(1, "ddp"), *((several, kind) for kind in kinds)]
    own = (training.gpus, training.sharding)
    if own not in pairs:
        pairs.insert(1 if own[0] == 1 else len(pairs), own)
    return tuple(Spread(_spread_label(*pair), *pair) for pair in pairs)


def spread_training(training: TrainingSettings, spread: Spread) -> TrainingSettings:
    """Return the settings with other GPUs; the number of nodes is kept only with that of GPUs."""
    nodes = training.nodes if spread.gpus == training.gpus else 0
    return replace(training, gpus=spread.gpus, sharding=spread.sharding, nodes=nodes)


def applied(case: Case[TrainingSettings], steps: Steps) -> TrainingSettings | None:
    """Return the settings with some remedies; None if none of them changes anything."""
    before = case.settings
    for name, which in steps:
        alike = [each.changes for each in of_training(case, lambda _: ()) if each.name == name]
        if alike:
            case = case.having(alike[which])
    return None if case.settings == before else case.settings


def _line_for(vocabulary: int) -> tuple[str, ...]:
    """Return the models with the smallest embedding that holds the ids, else the largest."""
    fitting = (line for line in LINES if _built_in(line[0]).model.vocabulary >= vocabulary)
    return next(fitting, LINES[-1])


def _built_in(name: str) -> NamedModel:
    return NamedModel(load_model(ModelSettings(name=name)), (f"--model {name}",))


def _model_options(settings: ModelSettings) -> tuple[str, ...]:
    default = ModelSettings()
    changed = {
        field.name: getattr(settings, field.name)
        for field in fields(settings)
        if getattr(settings, field.name) != getattr(default, field.name)
    }
    named = (f"--model {shlex.quote(settings.name)}",) if changed.pop("name", "") else ()
    return named + options(changed)


def _least_gpu(model: Model) -> str:
    """Return the GPU that is shown first if none is given: large enough for AdamW's states."""
    need = 18 * model.parameters
    names: Iterable[str] = GPUS[1:-1]
    return next((name for name in names if find_gpu(name).memory_bytes > need), GPUS[-1])


def _spread_label(gpus: int, sharding: str) -> str:
    if gpus == 1 and sharding == "ddp":
        return "1 GPU"
    kinds = {"ddp": "DDP", "fsdp": "FSDP", "fsdp-grad-op": "FSDP, gradients only"}
    kind = kinds.get(sharding, sharding.replace("zero", "ZeRO").replace("-", " ", 1))
    kind = kind.replace("ZeRO ", "ZeRO-")
    return f"{plural(gpus, 'GPU')}, {kind}"
