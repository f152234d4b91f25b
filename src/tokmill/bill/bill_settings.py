"""Settings of a bill, from options, files and the dataset's own run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tokmill.settings.inference import InferenceSettings
from tokmill.settings.load import build_config, file_values, merged
from tokmill.settings.model import ModelSettings
from tokmill.settings.names import not_default
from tokmill.settings.schema import BILL_SECTIONS
from tokmill.settings.training import TrainingSettings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tokmill.bill.settings_files.settings_file import ReadSettings
    from tokmill.settings.schema import Config


@dataclass(frozen=True, slots=True)
class BillSettings:
    """Settings of the bill.

    `notes` are warnings about settings and settings files. `not_read` are keys of settings files
    that the bill does not use. `trains` and `serves`: whether training and inference are billed.
    """

    model: ModelSettings = field(default_factory=ModelSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    inference: InferenceSettings = field(default_factory=InferenceSettings)
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
        return bool(self.model.name or self.model.family or self.model.parameters)


def bill_settings(
    base: Mapping[str, Mapping[str, Any]],
    config_file: Path | None,
    files: Mapping[str, Path],
    values: Mapping[str, Mapping[str, Any]],
) -> BillSettings:
    """Return the settings of a bill; a later source wins over an earlier one.

    Args:
        base: settings of the dataset's own run, by section.
        config_file: a TOML file.
        files: settings files of other programs, by kind: deepspeed, training_args, axolotl.
        values: settings of this bill, by section.

    Raises:
        UsageError: a file cannot be read, or a value is wrong.
    """
    read = [_read(kind, path) for kind, path in files.items()]
    every = merged(
        not_default(base, BILL_SECTIONS),
        file_values(config_file),
        *({"model": found.model, "training": found.training} for found in read),
        values,
    )
    own = {section: every[section] for section in BILL_SECTIONS if section in every}
    return replace(
        BillSettings.of(build_config(own)),
        notes=tuple(note for found in read for note in found.notes),
        not_read=tuple(key for found in read for key in found.not_read),
        trains="inference" not in own or bool(set(own.get("training", ())) - {"gpu"}),
    )


def _read(kind: str, path: Path) -> ReadSettings:
    from tokmill.bill import settings_files  # only where there is a file: imports take time

    readers = {
        "deepspeed": settings_files.read_deepspeed,
        "training_args": settings_files.read_training_arguments,
        "axolotl": settings_files.read_axolotl,
    }
    return readers[kind](path)
