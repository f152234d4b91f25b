"""Settings of a bill: from their sources, and completed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.bill.activations.situation import DEFAULT_SEQUENCE, default_sequence
from tokmill.bill.models.model import Model
from tokmill.bill.on_disk import DatasetSize
from tokmill.bill.states.contradictions import check_parallelism
from tokmill.bill.states.parallel import state_ranks
from tokmill.bill.trainers import as_trainer
from tokmill.errors import UsageError
from tokmill.settings.load import build_config, file_values, merged
from tokmill.settings.names import not_default
from tokmill.settings.schema import BILL_SECTIONS
from tokmill.settings.training import InferenceSettings, ModelSettings, TrainingSettings

if TYPE_CHECKING:
    from tokmill.settings.schema import Config

LEAST_HOST_RAM = 64 << 20
_MACHINE = {"gpu", "gpus", "host_ram"}
"""Settings of the machine, which may train or serve."""


@dataclass(frozen=True, slots=True)
class BillSettings:
    """Settings of the bill.

    `notes` are warnings about settings and settings files. `not_read` are keys of settings files
    that the bill does not use. `trains` and `serves`: whether training and inference are billed.
    `given` names the settings of training that are no defaults of a trainer.
    """

    model: ModelSettings = field(default_factory=ModelSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    inference: InferenceSettings = field(default_factory=InferenceSettings)
    notes: tuple[str, ...] = ()
    not_read: tuple[str, ...] = ()
    trains: bool = True
    serves: bool = False
    given: tuple[str, ...] = ()

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
        return bool(self.model.name or self.model.family or self.model.parameters)


def bill_settings(
    base: Mapping[str, Mapping[str, Any]],
    config_file: Path | None,
    deepspeed: Path | None,
    values: Mapping[str, Mapping[str, Any]],
) -> BillSettings:
    """Return the settings of a bill; a later source wins over an earlier one.

    Args:
        base: settings of the dataset's own run, by section.
        config_file: a TOML file.
        deepspeed: a DeepSpeed configuration (JSON).
        values: settings of this bill, by section.

    Raises:
        UsageError: a file cannot be read, or a value is wrong.
    """
    read = None
    if deepspeed is not None:
        from tokmill.bill.deepspeed import read_deepspeed  # only where needed: imports take time

        read = read_deepspeed(deepspeed)
    every = merged(
        not_default(base, BILL_SECTIONS),
        file_values(config_file),
        {} if read is None else {"training": read.training},
        values,
    )
    own = {section: every[section] for section in BILL_SECTIONS if section in every}
    trains = "inference" not in own or bool(set(own.get("training", ())) - _MACHINE)
    settings = BillSettings.of(build_config(own))
    if not trains and "serving_gpus" not in own["inference"]:
        shared = replace(settings.inference, serving_gpus=settings.training.gpus)
        settings = replace(settings, inference=shared)
    given = tuple(own.get("training", ()))
    return replace(
        settings,
        training=as_trainer(settings.training, given),
        given=given,
        notes=() if read is None else read.notes,
        not_read=() if read is None else read.not_read,
        trains=trains,
    )


def complete_training(
    training: TrainingSettings, model: Model | None, size: DatasetSize | None
) -> TrainingSettings:
    """Return the settings with sequence, sharding and epochs filled in, and checked with the model.

    `sequence` is the setting, else the length of packed rows, else `default_sequence`. Completing
    them again changes nothing. All bills take settings that this function has returned.

    Raises:
        UsageError: settings contradict each other or the model, or the host RAM lacks its unit.
    """
    if 0 < training.host_ram < LEAST_HOST_RAM:
        raise UsageError(
            f"host_ram: expected the memory of a machine (512GiB), found {training.host_ram} B"
        )
    capacity = 0 if size is None else size.capacity
    otherwise = DEFAULT_SEQUENCE if model is None else default_sequence(model)
    training = replace(training, sequence=training.sequence or capacity or otherwise)
    plain = training.sharding == "ddp" and training.framework == "hf"
    if training.offload != "none" and plain and state_ranks(training) == 1:
        # DeepSpeed offloads on one GPU too, where its kinds of sharding share nothing.
        sharding = "zero-2" if training.offload == "optimizer" else "zero-3"
        training = replace(training, sharding=sharding)
    if model is not None:
        check_parallelism(model, training)
    if training.tokens and size is not None and size.train_tokens:
        return replace(training, epochs=training.tokens / size.train_tokens)
    return training
