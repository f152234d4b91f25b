from __future__ import annotations

from dataclasses import replace

from tokmill.bill.dataset_size import DatasetSize
from tokmill.bill.host_ram.loading import (
    batch_lines,
    cache_lines,
    copied_lines,
    held_lines,
    loading_symbols,
    process_lines,
    shared_lines,
    starting_lines,
)
from tokmill.bill.host_ram.machine import MIB, Machine
from tokmill.settings.training import TrainingSettings

MASKED = DatasetSize(
    "sft", tokens=1000, documents=1, item_bytes=2, mask=True, shards=4, largest_shard_tokens=300
)


def symbols_of(loading: str, size: DatasetSize | None, workers: int = 0, start: str = "fork"):
    training = TrainingSettings(
        loading=loading, loader_workers=workers, start_method=start, sequence=10, micro_batch=2
    )
    return training, loading_symbols(training, size, Machine(interpreter_bytes=100 * MIB))


def total(lines) -> int:
    return sum(line.n_bytes for line in lines)


def test_forked_workers_copy_nothing_but_the_objects_of_lists():
    for loading in ("memmap", "read", "concatenate", "int64", "copies"):
        assert copied_lines(*symbols_of(loading, MASKED, 4)) == []
    (line,) = copied_lines(*symbols_of("lists", MASKED, 4))
    assert (line.low_bytes, line.n_bytes, line.high_bytes) == (0, 32000, 4 * 32000)
    assert starting_lines(*symbols_of("lists", MASKED, 4)) == []


def test_every_process_of_a_machine_has_its_own():
    training = TrainingSettings(
        gpus=16, gpus_per_node=4, loading="read", loader_workers=1, sequence=10
    )
    symbols = loading_symbols(training, MASKED, Machine(interpreter_bytes=MIB))
    assert total(process_lines(training, symbols)) == 4 * (1 + 12) * MIB
    assert total(process_lines(replace(training, start_method="spawn"), symbols)) == 4 * 8 * MIB
    assert total(held_lines(training, symbols)) == 4 * 3000
    assert total(batch_lines(training, symbols)) == 4 * (160 + 3 * 160)
    assert total(cache_lines(TrainingSettings(), symbols)) == 3000


def test_hugging_face_datasets_maps_its_files_and_imports_more() -> None:
    """Measured with datasets 5.2 and torch 2.13: 63 MiB of imports, 2 MiB for a table of 157."""
    training, symbols = symbols_of("datasets", MASKED)
    assert total(process_lines(training, symbols)) == (100 + 65) * MIB
    assert held_lines(training, symbols) == []
    assert total(cache_lines(training, symbols)) == 2 * 4 * 1000
    spawned = symbols_of("datasets", MASKED, 2, "spawn")
    assert copied_lines(*spawned) == starting_lines(*spawned) == []


def test_batches_are_ids_and_labels_of_eight_bytes():
    assert total(batch_lines(*symbols_of("read", None))) == 2 * 16 * 20
    training, symbols = symbols_of("read", None, 3)
    assert total(batch_lines(training, symbols)) == (3 + 3 * 2 + 1) * 16 * 20
    assert total(shared_lines(training, symbols)) == (3 * 2 + 1) * 16 * 20
    assert shared_lines(*symbols_of("read", None)) == []
