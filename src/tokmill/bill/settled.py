"""Complete training settings: derive what follows from other settings, model and dataset."""

from __future__ import annotations

from dataclasses import replace

from tokmill.bill.activations.situation import DEFAULT_SEQUENCE, default_sequence
from tokmill.bill.dataset_size import DatasetSize
from tokmill.bill.models.model import Model
from tokmill.errors import UsageError
from tokmill.settings.training import TrainingSettings
from tokmill.words.plural import plural

LEAST_HOST_RAM = 64 << 20


def settled(
    training: TrainingSettings, model: Model | None, size: DatasetSize | None
) -> TrainingSettings:
    """Return the settings with sequence, GPUs, GPUs per node and epochs filled in.

    `sequence` is the setting, else the length of packed rows, else `default_sequence`. Calling it
    again changes nothing.

    Raises:
        UsageError: nodes and GPUs contradict each other, or the host RAM lacks its unit.
    """
    if 0 < training.host_ram < LEAST_HOST_RAM:
        raise UsageError(
            f"host_ram: expected the memory of a machine (512GiB), found {training.host_ram} B"
        )
    capacity = 0 if size is None else size.capacity
    otherwise = DEFAULT_SEQUENCE if model is None else default_sequence(model)
    training = _with_nodes(replace(training, sequence=training.sequence or capacity or otherwise))
    if training.tokens and size is not None and size.train_tokens:
        return replace(training, epochs=training.tokens / size.train_tokens)
    return training


def _with_nodes(training: TrainingSettings) -> TrainingSettings:
    """Return the settings with GPUs and GPUs per node that match `nodes`, if that is given."""
    nodes, each, gpus = training.nodes, training.gpus_per_node, training.gpus
    if not nodes:
        return training
    if gpus == 1 and each:
        gpus = nodes * each
    if gpus % nodes or (each and each * nodes != gpus):
        found = f"{plural(gpus, 'GPU')}" + (f", {each} per node" if each else "")
        raise UsageError(
            f"nodes: expected --gpus to be --nodes times --gpus-per-node, found "
            f"{plural(nodes, 'node')} with {found}"
        )
    return replace(training, gpus=gpus, gpus_per_node=gpus // nodes)
