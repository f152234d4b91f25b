from __future__ import annotations

from dataclasses import replace

import pytest

from tokmill.bill.dataset_size import DatasetSize
from tokmill.bill.host_ram.loading import (
    batch_lines,
    cache_lines,
    copied_lines,
    freed_lines,
    held_lines,
    loading_symbols,
    opening_lines,
    process_lines,
    shared_lines,
    starting_lines,
)
from tokmill.bill.host_ram.machine import MIB, Machine
from tokmill.settings.training import TrainingSettings

PLAIN = DatasetSize(
    "pretrain", tokens=1000, documents=1, item_bytes=2, shards=4, largest_shard_tokens=300
)
MASKED = DatasetSize(
    "sft", tokens=1000, documents=1, item_bytes=2, mask=True, shards=4, largest_shard_tokens=300
)
WEIGHTED = DatasetSize(
    "sft", tokens=1000, documents=1, item_bytes=4, mask=True, weights=True, shards=4,
    largest_shard_tokens=300,
)  # fmt: skip


def symbols_of(loading: str, size: DatasetSize | None, workers: int = 0, start: str = "fork"):
    training = TrainingSettings(
        loading=loading, loader_workers=workers, start_method=start, sequence=10, micro_batch=2
    )
    return training, loading_symbols(training, size, Machine(interpreter_bytes=100 * MIB))


def total(lines) -> int:
    return sum(line.n_bytes for line in lines)


@pytest.mark.parametrize(
    ("loading", "plain", "masked", "weighted"),
    [
        ("memmap", 0, 0, 0),
        ("lazy", 0, 0, 0),
        ("read", 2000, 3000, 9000),
        ("concatenate", 2000, 3000, 9000),
        ("int64", 8000, 16000, 20000),
        ("lists", 40000, 48000, 88000),
        ("copies", 2000, 3000, 9000),
    ],
)
def test_a_strategy_holds_so_many_bytes(loading: str, plain: int, masked: int, weighted: int):
    for size, expected in ((PLAIN, plain), (MASKED, masked), (WEIGHTED, weighted)):
        assert total(held_lines(*symbols_of(loading, size))) == expected


@pytest.mark.parametrize(
    ("loading", "plain", "masked", "weighted"),
    [
        ("read", 2000, 3000, 9000),
        ("concatenate", 4000, 3000 + 1000, 9000 + 4000),  # the last of the bodies to be joined
        ("int64", 8000 + 600, 16000 + 300, 20000 + 1200),
        ("lists", 40000 + 600, 48000 + 300, 88000 + 1200),
    ],
)
def test_opening_takes_what_stands_there_twice(
    loading: str, plain: int, masked: int, weighted: int
):
    for size, expected in ((PLAIN, plain), (MASKED, masked), (WEIGHTED, weighted)):
        assert total(opening_lines(*symbols_of(loading, size))) == expected


@pytest.mark.parametrize("loading", ["lazy", "copies"])
def test_what_workers_open_is_not_opened_before(loading: str):
    assert opening_lines(*symbols_of(loading, MASKED, 2)) == []


def test_each_worker_has_a_copy_that_it_read_itself():
    assert total(held_lines(*symbols_of("copies", MASKED, 4))) == 4 * 3000


def test_only_integers_above_256_are_objects_of_their_own():
    size = DatasetSize("pretrain", 1000, 1, 2, small_ids=0.25)
    (line,) = held_lines(*symbols_of("lists", size))
    assert (line.low_bytes, line.n_bytes, line.high_bytes) == (8000, 32000, 32000)


@pytest.mark.parametrize(
    ("loading", "copied", "pickled"),
    [
        ("memmap", 3000, 3000),
        ("lazy", 0, 0),
        ("read", 3000, 3000),
        ("concatenate", 3000, 3000),
        ("int64", 16000, 16000),
        ("lists", 48000, 5000),
        ("copies", 0, 0),
    ],
)
def test_a_spawned_worker_has_a_copy_and_its_start_takes_another(
    loading: str, copied: int, pickled: int
):
    training, symbols = symbols_of(loading, MASKED, 3, "spawn")
    assert total(copied_lines(training, symbols)) == 3 * copied
    starting = total(starting_lines(training, symbols))
    held = total(held_lines(training, symbols))
    assert starting == (held + 3 * copied + pickled if copied else 0)


@pytest.mark.parametrize(
    ("loading", "block"),
    [("memmap", 600), ("read", 600), ("concatenate", 2000), ("int64", 2400), ("lists", 0),
     ("lazy", 0), ("copies", 0)],
)  # fmt: skip
def test_malloc_keeps_up_to_three_of_the_blocks_that_were_copied_for_workers(
    loading: str, block: int
):
    lines = freed_lines(*symbols_of(loading, MASKED, 2, "spawn"))
    found = [(line.low_bytes, line.n_bytes, line.high_bytes) for line in lines]
    assert found == ([(0, block, 3 * block)] if block else [])
    assert freed_lines(*symbols_of(loading, MASKED, 2, "fork")) == []
    assert freed_lines(*symbols_of(loading, MASKED, 0, "spawn")) == []


def test_blocks_over_32_mib_return_to_the_system():
    size = replace(MASKED, tokens=80 * MIB, largest_shard_tokens=20 * MIB)
    assert total(freed_lines(*symbols_of("read", size, 2, "spawn"))) == 20 * MIB  # the mask's
    assert freed_lines(*symbols_of("concatenate", size, 2, "spawn")) == []


def test_forked_workers_copy_nothing_but_the_objects_of_lists():
    for loading in ("memmap", "read", "concatenate", "int64", "copies"):
        assert copied_lines(*symbols_of(loading, MASKED, 4)) == []
    (line,) = copied_lines(*symbols_of("lists", MASKED, 4))
    assert (line.low_bytes, line.n_bytes, line.high_bytes) == (0, 32000, 4 * 32000)
    assert starting_lines(*symbols_of("lists", MASKED, 4)) == []


def test_without_workers_nothing_is_copied():
    assert copied_lines(*symbols_of("lists", MASKED, 0, "spawn")) == []
    assert starting_lines(*symbols_of("read", MASKED, 0, "spawn")) == []


def test_a_spawned_worker_is_an_interpreter_and_a_forked_one_is_not():
    assert total(process_lines(*symbols_of("read", None))) == 100 * MIB
    assert total(process_lines(*symbols_of("read", None, 2))) == (100 + 2 * 12) * MIB
    assert total(process_lines(*symbols_of("read", None, 2, "spawn"))) == (300 + 6) * MIB


def test_what_a_forked_worker_makes_its_own_is_the_machines():
    training = TrainingSettings(loader_workers=2, sequence=10)
    machine = Machine(interpreter_bytes=MIB, forked_bytes=3 * MIB)
    lines = process_lines(training, loading_symbols(training, None, machine))
    assert total(lines) == (1 + 2 * 3) * MIB


def test_every_process_of_a_machine_has_its_own():
    training = TrainingSettings(
        gpus=16, gpus_per_node=4, loading="read", loader_workers=1, sequence=10
    )
    symbols = loading_symbols(training, MASKED, Machine(interpreter_bytes=MIB))
    assert total(process_lines(training, symbols)) == 4 * (1 + 12) * MIB
    assert total(process_lines(replace(training, start_method="spawn"), symbols)) == 4 * 8 * MIB
    assert total(held_lines(training, symbols)) == 4 * 3000
    assert total(batch_lines(training, symbols)) == 4 * (160 + 3 * 160)
    assert total(cache_lines(symbols)) == 3000


def test_batches_are_ids_and_labels_of_eight_bytes():
    assert total(batch_lines(*symbols_of("read", None))) == 2 * 16 * 20
    training, symbols = symbols_of("read", None, 3)
    assert total(batch_lines(training, symbols)) == (3 + 3 * 2 + 1) * 16 * 20
    assert total(shared_lines(training, symbols)) == (3 * 2 + 1) * 16 * 20
    assert shared_lines(*symbols_of("read", None)) == []


def test_pinned_batches_may_be_rounded_up_to_twice_their_size():
    training = TrainingSettings(pin_memory=True, sequence=10, loader_workers=1)
    *_, pinned = batch_lines(training, loading_symbols(training, None, Machine()))
    assert (pinned.n_bytes, pinned.high_bytes) == (3 * 160, 6 * 160)


def test_the_page_cache_may_be_empty():
    training, symbols = symbols_of("memmap", MASKED)
    (line,) = cache_lines(symbols)
    assert (line.low_bytes, line.n_bytes) == (0, 3000)
    assert held_lines(training, symbols) == []
