"""Files for NeMo Automodel: those of Megatron, named without splits that have no paths."""

from __future__ import annotations

import json

import pytest
import yaml

from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError
from tokmill.trainers.export import export
from tokmill.trainers.options import ExportOptions


def test_the_sections_name_the_data_of_each_split(pretrained: Dataset, tmp_path) -> None:
    made = export(pretrained.directory, "automodel", tmp_path / "a: b", ExportOptions(merge=True))
    place = tmp_path / "a: b"
    settings = yaml.safe_load(made.usage)
    assert settings["dataset"]["splits_to_build"] == "train"
    assert settings["validation_dataset"]["splits_to_build"] == "validation"
    assert {section["paths"] for section in settings.values()} == {str(place / "data.json")}
    assert json.loads((place / "data.json").read_text()) == {
        "train": [str(place / "train")],
        "valid": [str(place / "val")],
    }


def test_a_split_without_paths_is_not_named(wide: Dataset, tmp_path) -> None:
    """Automodel stops at a split whose paths are null."""
    made = export(wide.directory, "automodel", tmp_path / "e", ExportOptions())
    assert list(json.loads((tmp_path / "e" / "data.json").read_text())) == ["train"]
    assert list(yaml.safe_load(made.usage)) == ["dataset"]


def test_automodel_reads_no_masks(chats: Dataset, tmp_path) -> None:
    with pytest.raises(UsageError, match="would train every token"):
        export(chats.directory, "automodel", tmp_path / "e", ExportOptions())
