"""The bill of a dataset and a model: disk, host RAM and GPU memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from tokmill.bill.bill_settings import BillSettings
from tokmill.bill.compute import Compute, compute
from tokmill.bill.dataset_size import DatasetSize, LongDocuments, long_documents
from tokmill.bill.disk_files import additions
from tokmill.bill.formula import Bill, Line
from tokmill.bill.gpus import Gpu, find_gpu
from tokmill.bill.host_ram.host import HostBill, host_bill
from tokmill.bill.host_ram.machine import Machine
from tokmill.bill.measuring.machine import this_machine
from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Model
from tokmill.bill.models.weight_types import PLAIN_BYTES
from tokmill.bill.on_disk import OnDisk, assumed_disk
from tokmill.bill.remedies.advice import Advice, advise
from tokmill.bill.serving.inference import decoding_speed, inference_bill
from tokmill.bill.settled import settled
from tokmill.bill.states.checkpoints import checkpoint_bill
from tokmill.bill.states.parallel import state_ranks
from tokmill.bill.states.precision import SCHEMES, precision_of
from tokmill.bill.training_bill import (
    TrainingBill,
    of_versions,
    training_bill,
    version_matters,
)
from tokmill.settings.training import TrainingSettings
from tokmill.words.plural import plural
from tokmill.words.units import memory

SCHEMA = 1
_MODEL_KEYS = (
    "model", "gpu", "training", "inference", "advice", "compute", "long_documents",
    "decoding_tokens_per_second",
)  # fmt: skip
INTEGERS = ("int8", "int4", "nf4", "nf4-double")
_ANY_VOCABULARY = 1 << 16
"""Assumed vocabulary of a dataset that does not exist yet; every parallelism can split it."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The inputs of a bill, loaded and completed; None: not given."""

    settings: BillSettings
    model: Model | None
    disk: OnDisk | None
    gpu: Gpu | None
    machine: Machine

    @property
    def size(self) -> DatasetSize | None:
        """The size of the dataset."""
        return None if self.disk is None else self.disk.size


@dataclass(frozen=True, slots=True)
class ModelBill:
    """GPU memory of training and serving, checkpoints, and advice.

    `gpu` and `decoding` are None without a GPU, `advice` also for a model without a shape;
    `compute` and `long_documents` are None without a dataset. `decoding` is an upper bound of
    tokens per second of inference.
    """

    model: Model
    training: TrainingBill
    inference: Bill
    checkpoints: Bill
    gpu: Gpu | None
    advice: Advice | None
    compute: Compute | None
    long_documents: LongDocuments | None
    decoding: float | None


@dataclass(frozen=True, slots=True)
class FullBill:
    """The complete bill of a model, a dataset or both: what `tokmill memory --json` prints.

    Attributes:
        settings: all settings, completed by `settled`.
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
            **_model_json(of_model),
            "host": self.host.as_json(),
            "disk": {
                **(no_disk if self.disk is None else self.disk.as_json()),
                "additions": [line.as_json() for line in self.additions],
                "checkpoints": None if of_model is None else of_model.checkpoints.as_json(),
            },
        }


def set_up(
    settings: BillSettings,
    disk: OnDisk | None,
    machine: Machine | None = None,
    model: Model | None = None,
) -> Setup:
    """Return the inputs of a bill; `model` is by default that of the settings.

    Host RAM is compared with the setting `host_ram`, else with `machine`, by default this machine
    if it has the GPUs that train.

    Raises:
        UsageError: the model or the GPU is not known, or settings contradict each other.
    """
    gpu = find_gpu(settings.training.gpu) if settings.training.gpu else None
    vocabulary = 0 if disk is None else disk.size.vocabulary
    if model is None and settings.names_a_model:
        model = load_model(settings.model, vocabulary=vocabulary)
    disk = disk or assumed_disk(settings.training, 0 if model is None else model.vocabulary)
    training = settled(settings.training, model, None if disk is None else disk.size)
    settings = replace(settings, training=training)
    if model is not None:
        context = settings.inference.context
        found = model_notes(model, sequence=training.sequence, context=context, ids=vocabulary)
        notes = (*settings.notes, *model.warnings, *found)
        if settings.trains:
            notes = (*notes, *training_notes(training, gpu), *stored_notes(model, training))
            notes = (*notes, *version_notes(model, training))
        settings = replace(settings, notes=notes)
    machine = (machine or this_machine()).for_training(training)
    return Setup(settings, model, disk, gpu, machine)


def model_notes(model: Model, *, sequence: int, context: int, ids: int) -> Iterator[str]:
    """Yield a note for each length beyond the model's positions, and for ids without an embedding.

    `sequence` and `context` are lengths in tokens, `ids` the size of the dataset's vocabulary.
    """
    most = model.positions
    for name, tokens in {"sequence": sequence, "context": context}.items():
        if tokens > most > 0:
            yield f"{name}: {tokens:,} tokens are more than the model's {plural(most, 'position')}"
    if ids > model.vocabulary > 0:
        yield (
            f"vocabulary: the dataset's tokenizer has {plural(ids, 'id')}, the model's embedding "
            f"{model.vocabulary:,}: resize the embedding to train on this dataset"
        )


def stored_notes(model: Model, training: TrainingSettings) -> Iterator[str]:
    """Yield a note if all weights are to be trained, but the model's files have integers."""
    if model.stored and model.stored.kind in INTEGERS and training.adapter == "none":
        yield (
            f"weights: {model.stored.note} cannot be trained; all weights are billed as "
            f"{precision_of(training)}; --adapter=lora keeps them as stored"
        )


def version_notes(model: Model, training: TrainingSettings) -> Iterator[str]:
    """Yield the needs of both versions of transformers, if none is given and they differ."""
    if training.transformers != "auto" or not version_matters(model, training):
        return
    old, new = (bill.peak.n_bytes for bill in of_versions(model, training))
    if old != new:
        yield (
            f"transformers: version 4 needs {memory(old)}, version 5 {memory(new)}; counted as the "
            "larger, set --transformers"
        )


def training_notes(training: TrainingSettings, gpu: Gpu | None) -> Iterator[str]:
    """Yield notes on idle pipeline stages, sharding on one GPU, and bf16 on a GPU without it."""
    stages, micro_batches = training.pipeline_parallel, training.accumulation
    if stages > 1 and micro_batches == 1:
        yield (
            f"pipeline_parallel: with 1 micro batch the {stages} stages work one after the other; "
            f"set accumulation to {stages} or more"
        )
    if training.sharding != "ddp" and state_ranks(training) == 1:
        yield (
            f"sharding: {training.sharding} shares nothing, each tensor is on 1 GPU; "
            "more GPUs (--gpus) would share it"
        )
    default = TrainingSettings()
    ranks = (training.adapter_rank, training.adapter_targets)
    if training.adapter == "none" and ranks != (default.adapter_rank, default.adapter_targets):
        yield "adapter_rank, adapter_targets: not used, all weights are trained; set --adapter=lora"
    precision = precision_of(training)
    if gpu and gpu.matrix_type == "fp16" and SCHEMES[precision].computed == PLAIN_BYTES["bf16"]:
        other = "--precision=amp with fp16, or fp32" if precision == "pure-16" else "fp16"
        yield f"precision: {gpu.name} has no bf16; use {other}" + (
            " (fp16 needs fp32 weights)" if precision == "pure-16" else " (the memory is the same)"
        )


def full_bill(
    settings: BillSettings, disk: OnDisk | None, machine: Machine | None = None
) -> FullBill:
    """Return the bill of a dataset, a model or both; `set_up` explains `machine`.

    Raises:
        UsageError: the model or the GPU is not known, or settings contradict each other.
    """
    return bill_of(set_up(settings, disk, machine))


def bill_of(setup: Setup) -> FullBill:
    """Return the complete bill.

    Raises:
        UsageError: settings contradict each other or the model.
    """
    training, size = setup.settings.training, setup.size
    more = additions(size, sequence=training.sequence, epochs=training.epochs) if size else ()
    of_model = None if setup.model is None else _of_model(setup.model, setup)
    host = host_bill(setup.model, training, size, setup.machine)
    return FullBill(setup.settings, host, of_model, setup.disk, more)


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


def _of_model(model: Model, setup: Setup) -> ModelBill:
    settings, size, gpu = setup.settings, setup.size, setup.gpu
    training = settings.training
    inference = inference_bill(model, settings.inference, context=training.sequence)
    return ModelBill(
        model,
        training_bill(model, training),
        inference,
        checkpoint_bill(model, training),
        gpu,
        advise(model, training, gpu) if gpu and model.has_shape else None,
        None if size is None else compute(model, training, size, gpu),
        long_documents(size, training.sequence) if size and size.length_histogram else None,
        None if gpu is None else decoding_speed(model, inference, settings.inference.batch, gpu),
    )


def _model_json(found: ModelBill | None) -> dict[str, Any]:
    """Return the costs of a model; without a model, the same keys with null."""
    if found is None:
        return dict.fromkeys(_MODEL_KEYS)
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
        "training": found.training.as_json(),
        "inference": found.inference.as_json(),
        "advice": _plain(found.advice),
        "compute": _plain(found.compute),
        "long_documents": _plain(found.long_documents),
        "decoding_tokens_per_second": found.decoding,
    }


def _plain(value: Any) -> dict[str, Any] | None:
    """Return a dataclass as a dictionary; None stays None."""
    return None if value is None else asdict(value)
