"""The inputs of a bill: settings completed with model, dataset and machine, and notes on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tokmill.bill.bill_settings import BillSettings, complete_training
from tokmill.bill.gpus import Gpu, find_gpu
from tokmill.bill.host_ram.machine import Machine, this_machine
from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Model
from tokmill.bill.models.weight_types import PLAIN_BYTES
from tokmill.bill.on_disk import DatasetSize, OnDisk, assumed_disk
from tokmill.bill.servers import check_lengths, context_of
from tokmill.bill.states.parallel import state_ranks
from tokmill.bill.states.precision import SCHEMES, precision_of
from tokmill.settings.training import TrainingSettings
from tokmill.words import plural

INTEGERS = ("int8", "int4", "nf4", "nf4-double")


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a bill is computed from, loaded and completed; None: not given."""

    settings: BillSettings
    model: Model | None
    disk: OnDisk | None
    gpu: Gpu | None
    machine: Machine

    @property
    def size(self) -> DatasetSize | None:
        """The size of the dataset."""
        return None if self.disk is None else self.disk.size

    def require_model(self) -> Model:
        """Return the model.

        Raises:
            UsageError: none is given.
        """
        return self.model or load_model(self.settings.model)  # says what is missing


def complete_inputs(
    settings: BillSettings,
    disk: OnDisk | None,
    machine: Machine | None = None,
    model: Model | None = None,
) -> Inputs:
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
    training = complete_training(settings.training, model, None if disk is None else disk.size)
    notes = list(settings.notes)
    if model is not None:
        notes += model.warnings
        served = context_of(settings.inference, 0)
        lengths = {"sequence": training.sequence, "context": served}
        notes += model_notes(model, **lengths, ids=vocabulary)
        if settings.trains:
            notes += [*training_notes(training, gpu), *stored_notes(model, training)]
    check_lengths(settings.inference)
    settings = replace(settings, training=training, notes=tuple(notes))
    machine = (machine or this_machine()).for_training(training)
    return Inputs(settings, model, disk, gpu, machine)


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


def training_notes(training: TrainingSettings, gpu: Gpu | None) -> Iterator[str]:
    """Yield notes on idle pipeline stages, sharding on one GPU, and bf16 on a GPU without it."""
    stages, micro_batches = training.pipeline_parallel, training.accumulation
    if stages > 1 and micro_batches == 1:
        yield (
            f"pipeline_parallel: with 1 micro batch the {stages} stages work one after the other; "
            f"set accumulation to {stages} or more"
        )
    alone = state_ranks(training) == 1 and training.offload == "none"
    if training.sharding != "ddp" and alone:
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
