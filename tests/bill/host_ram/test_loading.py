from __future__ import annotations

from dataclasses import replace

from tokmill.bill.dataset_size import DatasetSize
from tokmill.bill.host_ram.loading import Loading
from tokmill.bill.host_ram.machine import MIB, Machine
from tokmill.settings.training import TrainingSettings

MASKED = DatasetSize(
    "sft", tokens=1000, documents=1, item_bytes=2, mask=True, shards=4, largest_shard_tokens=300
)


def loading_of(loading: str, size: DatasetSize | None, workers: int = 0, start: str = "fork"):
    training = TrainingSettings(
        loading=loading, loader_workers=workers, start_method=start, sequence=10, micro_batch=2
    )
    return Loading.of(training, size, Machine(interpreter_bytes=100 * MIB))


def total(lines) -> int:
    return sum(line.n_bytes for line in lines)


def test_forked_workers_copy_nothing_but_the_objects_of_lists():
    for loading in ("memmap", "read", "concatenate", "int64", "copies"):
        assert loading_of(loading, MASKED, 4).copied() == []
    (line,) = loading_of("lists", MASKED, 4).copied()
    assert (line.low_bytes, line.n_bytes, line.high_bytes) == (0, 32000, 4 * 32000)
    assert loading_of("lists", MASKED, 4).starting() == []


def test_every_process_of_a_machine_has_its_own():
    training = TrainingSettings(
        gpus=16, gpus_per_node=4, loading="read", loader_workers=1, sequence=10
    )
    forked = Loading.of(training, MASKED, Machine(interpreter_bytes=MIB))
    assert total(forked.trainers()) == 4 * MIB
    assert total(forked.workers()) == 4 * 12 * MIB
    spawned = replace(forked, training=replace(training, start_method="spawn"))
    assert total(spawned.workers()) == 4 * 7 * MIB
    assert total(forked.loaded()) == 4 * 3000
    assert total(forked.batches()) == 4 * (160 + 3 * 160)
    assert total(forked.page_cache()) == 3000


def test_hugging_face_datasets_maps_its_files_and_imports_more() -> None:
    """Measured with datasets 5.2 and torch 2.13: 63 MiB of imports, 2 MiB for a table of 157."""
    alone = loading_of("datasets", MASKED)
    assert total(alone.trainers()) == (100 + 65) * MIB
    assert alone.loaded() == []
    assert total(alone.page_cache()) == 2 * 4 * 1000
    spawned = loading_of("datasets", MASKED, 2, "spawn")
    assert spawned.copied() == spawned.starting() == []


def test_batches_are_ids_and_labels_of_eight_bytes():
    alone = loading_of("read", None)
    assert total(alone.batches()) == 2 * 16 * 20
    assert alone.shared() == []
    fed = loading_of("read", None, 3)
    assert total(fed.batches()) == (3 + 3 * 2 + 1) * 16 * 20
    assert total(fed.shared()) == (3 * 2 + 1) * 16 * 20
