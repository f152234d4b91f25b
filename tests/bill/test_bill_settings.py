"""Training settings that follow from others, from the model and from the dataset."""

from __future__ import annotations

import pytest

from tokmill.bill.bill_settings import complete_training
from tokmill.bill.dataset_size import DatasetSize
from tokmill.bill.models.load import model_from_config
from tokmill.errors import UsageError
from tokmill.settings.training import TrainingSettings

CONFIG = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 100}
TINY = model_from_config({**CONFIG, "n_positions": 77})
PACKED = DatasetSize("sft", 1000, 10, 2, capacity=33, val_tokens=200)


def test_a_sequence_is_as_asked_or_packed_or_as_long_as_the_positions():
    asked = TrainingSettings(sequence=5)
    assert complete_training(asked, TINY, PACKED).sequence == 5
    assert complete_training(TrainingSettings(), TINY, PACKED).sequence == 33
    assert complete_training(TrainingSettings(), TINY, None).sequence == 77
    assert complete_training(TrainingSettings(), None, None).sequence == 2048


def test_tokens_to_train_on_decide_the_epochs_of_a_dataset():
    assert complete_training(TrainingSettings(tokens=1600), None, PACKED).epochs == 2.0
    assert complete_training(TrainingSettings(tokens=1600, epochs=3), None, None).epochs == 3


def test_completed_settings_stay_as_they_are():
    once = complete_training(TrainingSettings(gpus=8, gpus_per_node=4, tokens=1600), TINY, PACKED)
    assert complete_training(once, TINY, PACKED) == once


def test_host_ram_without_its_unit_is_refused():
    with pytest.raises(UsageError, match=r"^host_ram: expected the memory of .*, found 64 B$"):
        complete_training(TrainingSettings(host_ram=64), TINY, None)
