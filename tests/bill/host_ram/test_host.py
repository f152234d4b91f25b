from __future__ import annotations

from dataclasses import replace

import pytest

from tokmill.bill.dataset_size import DatasetSize, assumed_size
from tokmill.bill.host_ram.host import HostBill, host_bill
from tokmill.bill.host_ram.machine import MIB, Machine
from tokmill.bill.models.load import model_from_config
from tokmill.bill.states.states import rank_states
from tokmill.settings.training import TrainingSettings

LLAMA = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 1000,
}  # fmt: skip
MODEL = model_from_config(LLAMA)
P = MODEL.parameters
MACHINE = Machine(memory_bytes=64 << 30, interpreter_bytes=100 * MIB)
SIZE = DatasetSize(
    "sft", tokens=10**9, documents=1, item_bytes=2, mask=True, shards=4,
    largest_shard_tokens=250_000_000,
)  # fmt: skip
TRAINING = TrainingSettings(sequence=128, micro_batch=4)


def moments(host: HostBill) -> dict[str, int]:
    """Give the bytes of each moment above a process's own."""
    return {
        bill.title.partition(": ")[2]: bill.n_bytes - bill.lines[0].n_bytes for bill in host.moments
    }


def test_a_mapped_dataset_alone_is_batches_and_page_cache():
    found = host_bill(None, TRAINING, SIZE, MACHINE)
    assert moments(found) == {"training": 2 * 16 * 4 * 128}
    assert found.page_cache.n_bytes == 3 * 10**9
    assert found.shared.n_bytes == 0
    assert found.verdict.said == "fits"


def test_100_gb_are_page_cache_if_mapped_and_committed_if_copied():
    training = TrainingSettings(sequence=2048, dataset_bytes=100 * 10**9, loader_workers=8)
    size = assumed_size(training, vocabulary=50_257)
    mapped = host_bill(None, training, size, MACHINE)
    assert mapped.peak.n_bytes < (100 + 8 * 12 + 2) * MIB
    (files,) = mapped.page_cache.lines
    assert (files.low_bytes, files.n_bytes) == (0, 100 * 10**9)
    spawned = replace(training, loading="read", start_method="spawn")
    copied = host_bill(None, spawned, size, MACHINE).peak
    held = {line.name: line.n_bytes for line in copied.lines}
    assert held["dataset as in the files"] == 100 * 10**9
    assert held["copies of the dataset in spawned workers"] == 8 * 100 * 10**9


def test_the_peak_of_joined_shards_is_their_opening():
    training = replace(TRAINING, loading="concatenate")
    found = host_bill(None, training, SIZE, MACHINE)
    assert moments(found)["opening the dataset"] == 4 * 10**9
    assert moments(found)["training"] == 3 * 10**9 + 2 * 16 * 4 * 128
    assert found.peak.title == "host RAM of a machine: opening the dataset"


@pytest.mark.parametrize(
    ("initialization", "expected"), [("full", 4 * P * 8), ("rank0", 4 * P), ("meta", 0)]
)
def test_initialization_makes_the_model_in_fp32_as_often_as_said(
    initialization: str, expected: int
):
    training = replace(TRAINING, gpus=8, initialization=initialization)
    found = host_bill(MODEL, training, None, MACHINE)
    assert found.moments[0].title == "host RAM of a machine: initialization"
    assert moments(found)["initialization"] == expected
    spread = found.moments[0].high_bytes - found.moments[0].n_bytes
    assert spread == expected  # a state dict beside it, loaded without mmap


def test_16_bit_weights_of_a_file_are_mapped_unless_a_trainer_creates_them() -> None:
    """transformers 5.23, 469M parameters: 2 MiB in the file's type, 4 B a parameter in fp32."""
    half = {"adapter": "none", "precision": "pure-16"}
    for settings, expected in (
        (half, 0),
        ({**half, "precision": "amp"}, 4 * P),
        ({**half, "sharding": "zero-2"}, 4 * P),
        ({**half, "initialization": "full"}, 4 * P),
    ):
        found = host_bill(MODEL, replace(TRAINING, **settings), None, MACHINE)  # type: ignore[arg-type]
        assert moments(found)["initialization"] == expected
        assert found.moments[0].high_bytes >= 4 * P  # created from a configuration
    mapped = replace(TRAINING, **half, initialization="mapped")  # type: ignore[arg-type]
    assert host_bill(MODEL, mapped, None, MACHINE).moments[0].lines[-1].high_bytes == 0


def test_each_process_keeps_fp32_logits_of_every_batch_of_all_ranks():
    training = replace(TRAINING, metric_batches=10, gpus=4, gpus_per_node=2)
    found = moments(host_bill(MODEL, training, None, MACHINE))
    assert found["evaluation"] - found["training"] == 4 * 4 * 128 * 1000 * 10 * 4 * 2
    assert "evaluation" not in moments(host_bill(MODEL, TRAINING, None, MACHINE))


def test_offloaded_states_stay_from_the_opening_to_the_end():
    training = replace(
        TRAINING, gpus=2, sharding="zero-2", offload="optimizer", loading="read",
        precision="mixed-16",
    )  # fmt: skip
    found = host_bill(MODEL, training, SIZE, MACHINE)
    host = rank_states(MODEL, training).host
    assert host
    held = [all(line in bill.lines for line in host) for bill in found.moments]
    assert held == [False, True, True, True]


def test_a_model_of_eight_processes_that_does_not_fit_is_told_to_be_made_on_meta():
    small = replace(MACHINE, memory_bytes=2 << 30)
    wide = model_from_config({**LLAMA, "vocab_size": 1_000_000})
    found = host_bill(wide, replace(TRAINING, gpus=8), None, small)
    assert found.verdict.together == ("--initialization meta",)


def test_a_dataset_in_lists_that_does_not_fit_is_told_to_be_mapped():
    small = replace(MACHINE, memory_bytes=32 << 30)
    found = host_bill(None, replace(TRAINING, loading="lists"), SIZE, small)
    assert found.verdict.said == "does not fit"
    assert found.verdict.together == ("--loading memmap",)


def test_a_base_that_is_not_trained_is_loaded_without_a_copy_in_host_ram():
    trained = host_bill(MODEL, TRAINING, None, MACHINE)
    adapted = host_bill(MODEL, replace(TRAINING, adapter="qlora"), None, MACHINE)
    created = "model, created by each process"
    assert created in [line.name for line in trained.moments[0].lines]
    assert created not in [line.name for moment in adapted.moments for line in moment.lines]
    full = replace(TRAINING, adapter="qlora", initialization="full")
    asked = host_bill(MODEL, full, None, MACHINE)
    assert created in [line.name for line in asked.moments[0].lines]
