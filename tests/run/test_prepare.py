from __future__ import annotations

import dataclasses

import pytest

from tokmill.recipes.memory_bounds import BASE_BYTES, ENGINE_THREAD_BYTES
from tokmill.recipes.spec import Part
from tokmill.run import prepare
from tokmill.run.prepare import workers_and_threads
from tokmill.settings.sft import SftSettings
from tokmill.sources.files import SourceFile
from tokmill.sources.slices import Slice

GIB = 1 << 30
MUCH = 1 << 50


@pytest.fixture
def machine(monkeypatch):
    """Set the cores and the memory that the process may use."""

    def make(n_cores: int, memory_bytes: int = MUCH) -> None:
        monkeypatch.setattr(prepare, "usable_cores", lambda: n_cores)
        monkeypatch.setattr(prepare, "usable_memory", lambda: memory_bytes)

    return make


def parts(n: int, compression: str = "", n_bytes: int = GIB) -> list[Part]:
    """Make parts of one slice each."""
    file = SourceFile("a.jsonl", "jsonl", compression, n * n_bytes, 0, "")
    return [Part(i, (Slice(file, 0, -1, n_bytes),)) for i in range(n)]


@pytest.mark.parametrize(
    ("n_workers", "n_threads", "n_parts", "expected"),
    [
        (0, 3, 9, (1, 3)),
        (4, 2, 3, (3, 2)),
        (2, 0, 9, (2, 4)),
    ],
)
def test_what_is_asked_for_holds_but_workers_are_at_most_the_parts(
    configure, tmp_path, machine, n_workers, n_threads, n_parts, expected
):
    machine(8)
    config = configure(tmp_path, workers=n_workers, threads=n_threads)
    assert workers_and_threads(config, parts(n_parts)) == expected


@pytest.mark.parametrize(
    ("n_cores", "n_parts", "expected"),
    [
        (1, 100, (1, 1)),
        (7, 100, (1, 7)),
        (8, 100, (2, 4)),
        (64, 1000, (9, 7)),
        (64, 3, (3, 21)),
        (64, 1, (1, 64)),
    ],
)
def test_by_default_more_cores_get_more_workers_if_there_are_parts_for_them(
    configure, tmp_path, machine, n_cores, n_parts, expected
):
    machine(n_cores)
    config = configure(tmp_path, workers=0, threads=0)
    assert workers_and_threads(config, parts(n_parts)) == expected


def test_a_reader_of_gzip_feeds_fewer_threads(configure, tmp_path, machine):
    machine(64)
    config = configure(tmp_path, workers=0, threads=0)
    assert workers_and_threads(config, parts(1000, "gz")) == (14, 4)
    assert workers_and_threads(config, parts(1000, "zst")) == (9, 7)
    assert workers_and_threads(config, parts(600) + parts(400, "gz")) == (9, 7)


def test_chats_keep_fewer_threads_busy(configure, tmp_path, machine):
    config = configure(tmp_path, workers=0, threads=0, sft=SftSettings())
    for n_cores, expected in [(2, (1, 2)), (3, (1, 3)), (4, (2, 2)), (64, (18, 3))]:
        machine(n_cores)
        assert workers_and_threads(config, parts(1000)) == expected


def test_little_input_does_not_pay_for_a_worker(configure, tmp_path, machine):
    machine(64)
    config = configure(tmp_path, workers=0, threads=0)
    assert workers_and_threads(config, parts(500, n_bytes=1 << 20)) == (1, 64)
    assert workers_and_threads(config, parts(500, n_bytes=10 << 20)) == (4, 16)


def test_what_workers_cannot_read_or_import_stays_in_this_process(configure, tmp_path, machine):
    machine(64)
    config = configure(tmp_path, "-", workers=0, threads=0)
    assert workers_and_threads(config, parts(100)) == (1, 64)
    local = configure(tmp_path, workers=0, threads=0, renderer="__main__:render")
    assert workers_and_threads(local, parts(100)) == (1, 64)


@pytest.mark.parametrize("gib", [1, 8, 16, 64])
def test_workers_stay_within_three_quarters_of_the_memory(configure, tmp_path, machine, gib):
    machine(64, gib * GIB)
    config = configure(tmp_path, workers=0, threads=0)
    n_workers, n_threads = workers_and_threads(config, parts(1000))
    taken = n_workers * (BASE_BYTES + n_threads * ENGINE_THREAD_BYTES // 2)
    assert n_workers == 1 or taken <= gib * GIB * 3 // 4
    assert (n_workers == 1) == (gib <= 8)


def test_the_forecast_names_what_the_run_uses(configure, tmp_path, write_rows, machine):
    from tokmill.run.forecast import forecast_run

    machine(3)
    source = write_rows(tmp_path / "in.jsonl", [{"text": "hello world"}] * 50)
    config = configure(tmp_path, source, threads=0)
    values = forecast_run(config, lambda _: None, lambda _: None)[0]
    assert (values["workers"], values["threads"]) == (1, 3)
    asked = dataclasses.replace(config, run=dataclasses.replace(config.run, workers=2, threads=5))
    values = forecast_run(asked, lambda _: None, lambda _: None)[0]
    assert (values["workers"], values["threads"]) == (1, 5)
