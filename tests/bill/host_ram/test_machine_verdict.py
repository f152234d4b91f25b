from __future__ import annotations

from tokmill.bill.gpus import BARELY, DOES_NOT_FIT, FITS, Need
from tokmill.bill.host_ram.machine import NOT_NOW, Machine, Verdict, host_verdict
from tokmill.settings.training import TrainingSettings

GIB = 1 << 30


def need(training: TrainingSettings) -> Need:
    """Give a need that falls with what the verdict may change, so many GiB each."""
    gib = 10
    gib += 20 * (training.loading not in ("memmap", "lazy"))
    gib += 8 * (training.start_method == "spawn") * training.loader_workers
    gib += 5 * (training.initialization == "full")
    shm = training.loader_workers * training.prefetch
    return Need(gib * GIB, 2 * gib * GIB, shm * GIB)


def judged(machine: Machine, **settings: object) -> Verdict:
    chosen = {"initialization": "meta", **settings}
    return host_verdict(TrainingSettings(**chosen), machine, need)


def test_what_is_needed_fits_or_fits_barely():
    assert judged(Machine(memory_bytes=64 * GIB)).said == FITS
    assert judged(Machine(memory_bytes=16 * GIB)).said == BARELY
    assert judged(Machine(memory_bytes=64 * GIB, available_bytes=4 * GIB)).said == NOT_NOW


def test_the_limit_of_the_cgroup_is_the_memory_that_there_is():
    found = judged(Machine(memory_bytes=64 * GIB, limit_bytes=8 * GIB))
    assert (found.said, found.usable_bytes) == (DOES_NOT_FIT, 8 * GIB)


def test_one_setting_that_is_enough_is_named_alone():
    found = judged(Machine(memory_bytes=16 * GIB), loading="read", metric_batches=3)
    assert found.said == "does not fit"
    assert found.together == ("--loading memmap",)


def test_settings_that_are_enough_together_are_named_in_order_of_their_cost():
    found = judged(
        Machine(memory_bytes=12 * GIB), loading="read", initialization="full",
        loader_workers=2, start_method="spawn",
    )  # fmt: skip
    assert found.together == (
        "--loading lazy", "--initialization meta", "--start-method fork"
    )  # fmt: skip


def test_spawned_workers_are_told_to_open_the_dataset_themselves():
    spawned = judged(
        Machine(memory_bytes=20 * GIB), loading="memmap", loader_workers=2, start_method="spawn"
    )
    assert spawned.together == ("--start-method fork",)


def test_a_small_shared_memory_is_a_problem_of_its_own():
    found = judged(Machine(memory_bytes=64 * GIB, shm_bytes=GIB), loader_workers=2)
    assert found.said == "does not fit"
    assert found.shm_bytes == GIB
    assert found.together == ("--loader-workers 0",)
    fewer = judged(Machine(memory_bytes=64 * GIB, shm_bytes=2 * GIB), loader_workers=2)
    assert fewer.together == ("--prefetch 1",)
