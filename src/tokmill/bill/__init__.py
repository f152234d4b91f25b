"""The bill of a model: parameters, GPU memory, host RAM and disk, as functions of plain values.

Functions take a model as a built-in name, a config.json or its contents, and settings by the names
of the options of `tokmill memory`. They return what `--json` prints. All amounts are in bytes. The
bill of a model trained on a dataset is `tokmill.Dataset.bill`.

    >>> tokmill.bill.count_parameters("gpt2")
    124439808
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokmill.bill.models.model import Model
    from tokmill.settings.training import TrainingSettings

__all__ = [
    "count_parameters",
    "disk_memory",
    "host_memory",
    "inference_memory",
    "parameters_by_module",
    "training_memory",
]


def count_parameters(model: str | Path | Mapping[str, Any]) -> int:
    """Return the parameters of a model, a tied tensor counted once.

    Args:
        model: a built-in name, the path of a config.json or its directory, or its contents.

    Raises:
        UsageError: the model is not known, or its configuration lacks something.
    """
    return _model(model).parameters


def parameters_by_module(model: str | Path | Mapping[str, Any]) -> dict[str, int]:
    """Return the parameters of embedding, attention, mlp, experts, router, norm and head.

    Modules that a model lacks are left out, a tied head among them; the sum is `count_parameters`.

    Args:
        model: see `count_parameters`.

    Raises:
        UsageError: see `count_parameters`.
    """
    return _model(model).by_module()


def training_memory(model: str | Path | Mapping[str, Any], **settings: Any) -> dict[str, Any]:
    """Return the GPU memory of training: the bill of the peak, and of each moment of a step.

    Args:
        model: see `count_parameters`.
        **settings: fields of `TrainingSettings`; the others are its defaults.

    Raises:
        UsageError: a setting is wrong, or settings contradict each other or the model.
    """
    from tokmill.bill.training_bill import training_bill

    bill = training_bill(_model(model), _training(settings))
    return {"peak": bill.peak.as_json(), "moments": [moment.as_json() for moment in bill.moments]}


def inference_memory(model: str | Path | Mapping[str, Any], **settings: Any) -> dict[str, Any]:
    """Return the bill of GPU memory of serving.

    Args:
        model: see `count_parameters`.
        **settings: fields of `InferenceSettings`; the others are its defaults. Without a context
            it is 2,048 tokens, or the model's positions if fewer.

    Raises:
        UsageError: a setting is wrong, or the model cannot be shared so.
    """
    from tokmill.bill.activations.situation import default_sequence
    from tokmill.bill.serving.inference import inference_bill
    from tokmill.settings.inference import InferenceSettings
    from tokmill.settings.load import build_config

    found = _model(model)
    config = build_config({"inference": settings}, where="inference_memory")
    serving = config.inference or InferenceSettings()
    return inference_bill(found, serving, context=default_sequence(found)).as_json()


def host_memory(
    model: str | Path | Mapping[str, Any] | None = None,
    directory: str | Path | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Return the bills of host RAM of one machine, by moment.

    Args:
        model: see `count_parameters`; None for the dataset alone.
        directory: of a finished dataset; None for the model alone.
        **settings: fields of `TrainingSettings`; the others are its defaults.

    Raises:
        TokmillError: a setting is wrong, or there is no finished dataset.
    """
    from tokmill.bill.dataset_size import dataset_size
    from tokmill.bill.host_ram.host import host_bill
    from tokmill.bill.host_ram.machine import Machine
    from tokmill.bill.settled import settled
    from tokmill.dataset.reader import read_intact_manifest

    found = None if model is None else _model(model)
    size = None if directory is None else dataset_size(read_intact_manifest(Path(directory)))
    training = settled(_training(settings), found, size)
    return host_bill(found, training, size, Machine()).as_json()


def disk_memory(directory: str | Path) -> dict[str, Any]:
    """Return the bill of a finished dataset's files; its total is their sum, to the byte.

    Raises:
        TokmillError: there is no finished dataset, or it is damaged.
    """
    from tokmill.bill.disk_files import dataset_disk
    from tokmill.dataset.reader import read_intact_manifest
    from tokmill.storage import file_sizes

    path = Path(directory)
    return dataset_disk(read_intact_manifest(path), file_sizes(path)).bill.as_json()


def _model(model: str | Path | Mapping[str, Any]) -> Model:
    from tokmill.bill.models.load import load_model, model_from_config
    from tokmill.settings.load import build_config
    from tokmill.settings.model import ModelSettings

    if isinstance(model, Mapping):
        return model_from_config(model)
    config = build_config({"model": {"name": model}}, where="model", named=lambda *_: "model")
    return load_model(config.model or ModelSettings())


def _training(settings: Mapping[str, Any]) -> TrainingSettings:
    from tokmill.settings.load import build_config
    from tokmill.settings.training import TrainingSettings

    config = build_config({"training": settings}, where="settings")
    return config.training or TrainingSettings()
