"""The bill of a dataset and a model: disk, host RAM and GPU memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from tokmill.bill.bill_settings import BillSettings, complete_training
from tokmill.bill.compute import Compute, compute
from tokmill.bill.formula import Bill, Line
from tokmill.bill.gpus import Gpu, Need, find_gpu
from tokmill.bill.host_ram.host import HostBill, host_bill, host_limit
from tokmill.bill.host_ram.machine import Machine
from tokmill.bill.inputs import Inputs
from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Model
from tokmill.bill.on_disk import OnDisk, additions
from tokmill.bill.remedies.advice import Advice, advise, advise_serving, gpu_limit
from tokmill.bill.remedies.search import Limit
from tokmill.bill.serving import inference_bill
from tokmill.bill.states.states import checkpoint_bill
from tokmill.bill.training_bill import TrainingBill, of_versions, training_bill, version_matters
from tokmill.settings.training import TrainingSettings
from tokmill.words import memory

SCHEMA = 1
MODEL_KEYS = (
    "model", "gpu", "training", "inference", "advice", "inference_advice", "compute",
)  # fmt: skip
"""Keys of the JSON that are null without a model."""
_ANY_VOCABULARY = 1 << 16
"""Assumed vocabulary of a dataset that does not exist yet; every parallelism can split it."""


@dataclass(frozen=True, slots=True)
class ModelBill:
    """GPU memory of training and serving, checkpoints, and advice.

    `gpu` is None without a GPU, and both advices also for a model without a shape; `advice` also
    if nothing is trained; `compute` is None without a dataset.
    """

    model: Model
    training: TrainingBill
    inference: Bill
    checkpoints: Bill
    gpu: Gpu | None
    advice: Advice | None
    inference_advice: Advice | None
    compute: Compute | None

    def as_json(self) -> dict[str, Any]:
        """Return plain values, those of `MODEL_KEYS`."""
        model = self.model
        return {
            "model": {
                "name": model.name,
                "family": model.family,
                "parameters": model.parameters,
                "active_parameters": model.active_parameters,
                "by_module": model.by_module(),
            },
            "gpu": self.gpu and asdict(self.gpu),
            "training": self.training.as_json(),
            "inference": self.inference.as_json(),
            "advice": self.advice and asdict(self.advice),
            "inference_advice": self.inference_advice and asdict(self.inference_advice),
            "compute": self.compute and asdict(self.compute),
        }


@dataclass(frozen=True, slots=True)
class FullBill:
    """The complete bill of a model, a dataset or both: what `tokmill memory --json` prints.

    Attributes:
        settings: all settings, completed with the model and the dataset.
        host: host RAM of a machine.
        of_model: GPU memory, checkpoints, advice, time; None without a model.
        disk: the dataset; None without one.
        additions: disk space that other choices would add.
    """

    settings: BillSettings
    host: HostBill
    of_model: ModelBill | None
    disk: OnDisk | None
    additions: tuple[Line, ...]

    def as_json(self) -> dict[str, Any]:
        """Return plain values; `schema` changes when keys change."""
        settings, of_model = self.settings, self.of_model
        no_disk = dict.fromkeys(("directory", "free_bytes", "dataset", "found"))
        return {
            "schema": SCHEMA,
            "settings": {
                name: asdict(getattr(settings, name)) for name in ("model", "training", "inference")
            },
            "notes": list(settings.notes),
            "not_read": list(settings.not_read),
            **(dict.fromkeys(MODEL_KEYS) if of_model is None else of_model.as_json()),
            "host": self.host.as_json(),
            "disk": {
                **(no_disk if self.disk is None else self.disk.as_json()),
                "additions": [line.as_json() for line in self.additions],
                "checkpoints": None if of_model is None else of_model.checkpoints.as_json(),
            },
        }


def full_bill(inputs: Inputs) -> FullBill:
    """Return the bill of a dataset, a model or both.

    Raises:
        UsageError: settings contradict each other or the model.
    """
    settings, model, size = inputs.settings, inputs.model, inputs.size
    training = settings.training
    if model is not None and settings.trains:
        notes = (*settings.notes, *version_notes(model, training))
        settings = replace(settings, notes=notes)
    gpu = inputs.gpu
    on_gpu = () if gpu is None or model is None or not model.has_shape else (gpu_limit(model, gpu),)
    return FullBill(
        settings,
        host_bill(model, training, size, inputs.machine, *on_gpu),
        None if model is None else _model_bill(model, inputs),
        inputs.disk,
        additions(size, sequence=training.sequence, epochs=training.epochs) if size else (),
    )


def check(settings: BillSettings) -> None:
    """Check that the bill can be computed once there is a dataset.

    Raises:
        UsageError: the model or the GPU is not known, or settings contradict each other.
    """
    if settings.training.gpu:
        find_gpu(settings.training.gpu)
    if settings.names_a_model:
        model = load_model(settings.model, vocabulary=_ANY_VOCABULARY)
        training_bill(model, complete_training(settings.training, model, None))


def _model_bill(model: Model, inputs: Inputs) -> ModelBill:
    """Return the bill of a model: training, serving, checkpoints, and advice with a GPU."""
    settings, size = inputs.settings, inputs.size
    training, context = settings.training, settings.training.sequence
    gpu = inputs.gpu if model.has_shape else None
    return ModelBill(
        model,
        training_bill(model, training),
        inference_bill(model, settings.inference, context=context, gpu=inputs.gpu),
        checkpoint_bill(model, training),
        inputs.gpu,
        advise(model, training, gpu, *_limits(model, inputs)) if gpu and settings.trains else None,
        None
        if gpu is None
        else advise_serving(
            model, settings.inference, gpu, context=context, host_bytes=inputs.machine.usable_bytes
        ),
        None if size is None else compute(model, training, size, inputs.gpu),
    )


def _limits(model: Model, inputs: Inputs) -> Iterator[Limit[TrainingSettings]]:
    """Yield the limits of host RAM and, of a dataset's directory, free disk space."""
    yield host_limit(model, inputs.size, inputs.machine)
    disk = inputs.disk
    if disk is not None and disk.free_bytes is not None:
        free = disk.free_bytes - (0 if disk.found is not None else disk.bill.high_bytes)
        if free > 0:
            yield Limit(partial(_checkpoints, model), free)


def limit_of_ram(model: Model, training: TrainingSettings) -> Limit[TrainingSettings]:
    """Return the limit of the host RAM that settings name; without one, nothing is known."""
    return host_limit(model, None, Machine(memory_bytes=training.host_ram))


def _checkpoints(model: Model, training: TrainingSettings) -> Need:
    """Return the disk space of checkpoints, of which none may be missing."""
    most = checkpoint_bill(model, complete_training(training, model, None)).high_bytes
    return Need(most, most)


def version_notes(model: Model, training: TrainingSettings) -> Iterator[str]:
    """Yield the needs of both versions of transformers, if none is set and they differ."""
    if training.transformers != "auto" or not version_matters(model, training):
        return
    version_4, version_5 = (bill.peak.n_bytes for bill in of_versions(model, training))
    if version_4 != version_5:
        yield (
            f"transformers: version 4 needs {memory(version_4)}, version 5 {memory(version_5)}; "
            "counted as the larger, set --transformers"
        )
