"""The bill of a dataset and a model: disk, host RAM and GPU memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from tokmill.bill.compute import compute, long_documents
from tokmill.bill.dataset_size import assumed_size, dataset_size
from tokmill.bill.disk_files import additions, dataset_disk, predicted_disk
from tokmill.bill.gpus import find_gpu
from tokmill.bill.host_ram.host import host_bill
from tokmill.bill.models.load import load_model
from tokmill.bill.notes import model_notes, training_notes
from tokmill.bill.remedies.advice import advise
from tokmill.bill.serving.inference import inference_bill
from tokmill.bill.settled import settled
from tokmill.bill.states.checkpoints import checkpoint_bill
from tokmill.bill.training_bill import training_bill
from tokmill.settings.inference import InferenceSettings
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings
from tokmill.storage import file_sizes, free_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tokmill.bill.compute import Compute, LongDocuments
    from tokmill.bill.dataset_size import DatasetSize
    from tokmill.bill.disk_files import DatasetDisk
    from tokmill.bill.formula import Bill, Line
    from tokmill.bill.gpus import Gpu
    from tokmill.bill.host_ram.host import HostBill
    from tokmill.bill.host_ram.machine import Machine
    from tokmill.bill.models.model import Model
    from tokmill.bill.remedies.advice import Advice
    from tokmill.bill.training_bill import TrainingBill
    from tokmill.settings.schema import Config

SCHEMA = 1
_ANY_VOCABULARY = 1 << 16
"""Vocabulary of a dataset that does not exist yet; any parallelism can split it."""


@dataclass(frozen=True, slots=True)
class BillSettings:
    """Settings of the bill.

    `notes`: warnings about settings and settings files. `not_read`: keys of settings files
    that the bill does not use. `trains`, `serves`: whether training and inference are asked for.
    """

    model: ModelSettings
    training: TrainingSettings
    inference: InferenceSettings
    notes: tuple[str, ...] = ()
    not_read: tuple[str, ...] = ()
    trains: bool = True
    serves: bool = False

    @classmethod
    def of(cls, config: Config) -> BillSettings:
        """Return the settings of a configuration; missing sections are the defaults."""
        return cls(
            config.model or ModelSettings(),
            config.training or TrainingSettings(),
            config.inference or InferenceSettings(),
            serves=config.inference is not None,
        )

    @property
    def names_a_model(self) -> bool:
        """Return whether a model is given, by name or by numbers."""
        return bool(self.model.name or self.model.family)


@dataclass(frozen=True, slots=True)
class OnDisk:
    """A dataset, finished, planned or assumed, and its directory.

    `bill`: by kind of file. `found`: the files of a finished dataset, None of others.
    `free_bytes`: free space of the file system; None of an assumed dataset, whose `directory` is
    empty.
    """

    directory: str
    size: DatasetSize
    bill: Bill
    free_bytes: int | None
    found: DatasetDisk | None = None


@dataclass(frozen=True, slots=True)
class ModelBill:
    """GPU memory of training and serving, checkpoints, and advice.

    `gpu` and `advice` are None without a GPU, `compute` and `long_documents` without a dataset.
    """

    model: Model
    training: TrainingBill
    inference: Bill
    checkpoints: Bill
    gpu: Gpu | None
    advice: Advice | None
    compute: Compute | None
    long_documents: LongDocuments | None


@dataclass(frozen=True, slots=True)
class FullBill:
    """The complete bill; `settings` has the final sequence length, parts not asked for are None."""

    settings: BillSettings
    host: HostBill
    of_model: ModelBill | None
    disk: OnDisk | None
    additions: tuple[Line, ...]


def full_bill(settings: BillSettings, disk: OnDisk | None, machine: Machine) -> FullBill:
    """Return the bill of a dataset, a model, or both.

    Raises:
        UsageError: the model or the GPU is not known, or settings contradict each other.
    """
    gpu = find_gpu(settings.training.gpu) if settings.training.gpu else None
    vocabulary = 0 if disk is None else disk.size.vocabulary
    model = load_model(settings.model, vocabulary=vocabulary) if settings.names_a_model else None
    disk = disk or _assumed_disk(settings.training, 0 if model is None else model.vocabulary)
    size = None if disk is None else disk.size
    training = settled(settings.training, model, size)
    settings = replace(settings, training=training)
    machine = machine.with_memory(training.host_ram) if training.host_ram else machine
    if model is not None:
        context = settings.inference.context
        found = model_notes(model, sequence=training.sequence, context=context, ids=vocabulary)
        notes = (*settings.notes, *model.warnings, *found, *training_notes(training, gpu))
        settings = replace(settings, notes=notes)
    more = additions(size, sequence=training.sequence, epochs=training.epochs) if size else ()
    of_model = None if model is None else _of_model(model, settings, size, gpu)
    return FullBill(settings, host_bill(model, training, size, machine), of_model, disk, more)


def on_disk(directory: Path, manifest: Mapping[str, Any]) -> OnDisk:
    """Return the size of a finished dataset.

    Raises:
        VerifyError: a file is missing, or not as large as the manifest says.
        StorageError: the directory cannot be read.
    """
    found = dataset_disk(manifest, file_sizes(directory))
    size = dataset_size(manifest)
    return OnDisk(str(directory), size, found.bill, free_bytes(directory), found)


def _assumed_disk(training: TrainingSettings, vocabulary: int) -> OnDisk | None:
    """Return the dataset that settings describe; None if they describe none."""
    size = assumed_size(training, vocabulary)
    return None if size is None else OnDisk("", size, predicted_disk(size, slices=0), None)


def check(settings: BillSettings) -> None:
    """Check that the bill can be computed once there is a dataset.

    Raises:
        UsageError: the model or the GPU is not known, or settings contradict each other.
    """
    if settings.training.gpu:
        find_gpu(settings.training.gpu)
    if settings.names_a_model:
        model = load_model(settings.model, vocabulary=_ANY_VOCABULARY)
        training_bill(model, settled(settings.training, model, None))


def _of_model(
    model: Model, settings: BillSettings, size: DatasetSize | None, gpu: Gpu | None
) -> ModelBill:
    training = settings.training
    return ModelBill(
        model,
        training_bill(model, training),
        inference_bill(model, settings.inference, context=training.sequence),
        checkpoint_bill(model, training),
        gpu,
        None if gpu is None else advise(model, training, gpu),
        None if size is None else compute(model, training, size, gpu),
        long_documents(size, training.sequence) if size and size.length_histogram else None,
    )


def as_json(found: FullBill) -> dict[str, Any]:
    """Return the bill as plain values; `schema` changes when keys change."""
    settings = found.settings
    return {
        "schema": SCHEMA,
        "settings": {
            name: asdict(getattr(settings, name)) for name in ("model", "training", "inference")
        },
        "notes": list(settings.notes),
        "not_read": list(settings.not_read),
        **_model_json(found.of_model),
        "host": found.host.as_json(),
        "disk": _disk_json(found),
    }


def _model_json(found: ModelBill | None) -> dict[str, Any]:
    """Return the costs of a model; without a model, the same keys with null."""
    if found is None:
        keys = ("model", "gpu", "training", "inference", "advice", "compute", "long_documents")
        return dict.fromkeys(keys)
    model = found.model
    return {
        "model": {
            "name": model.name,
            "family": model.family,
            "parameters": model.parameters,
            "active_parameters": model.active_parameters,
            "by_module": model.by_module(),
        },
        "gpu": _plain(found.gpu),
        "training": {
            "peak": found.training.peak.as_json(),
            "moments": [bill.as_json() for bill in found.training.moments],
        },
        "inference": found.inference.as_json(),
        "advice": _plain(found.advice),
        "compute": _plain(found.compute),
        "long_documents": _plain(found.long_documents),
    }


def _disk_json(found: FullBill) -> dict[str, Any]:
    disk, of_model = found.disk, found.of_model
    shares = _plain(disk.found if disk else None)
    if disk and disk.found and shares:
        del shares["bill"]
        shares["bytes_per_token"] = disk.bill.n_bytes / max(1, disk.found.tokens)
    return {
        "directory": disk and disk.directory,
        "free_bytes": disk and disk.free_bytes,
        "dataset": disk and disk.bill.as_json(),
        "found": shares,
        "additions": [line.as_json() for line in found.additions],
        "checkpoints": None if of_model is None else of_model.checkpoints.as_json(),
    }


def _plain(value: Any) -> dict[str, Any] | None:
    """Return a dataclass as a dictionary; None stays None."""
    return None if value is None else asdict(value)
