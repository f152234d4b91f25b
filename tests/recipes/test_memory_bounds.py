from __future__ import annotations

import dataclasses

import pytest

from tokmill.chat.own_templates import own_source
from tokmill.recipes.memory_bounds import (
    BASE_BYTES,
    LEAST_ENGINE_BYTES,
    WRITER_BYTES,
    blocks_bytes,
    engine_bytes,
    n_writers,
    worker_bytes,
)
from tokmill.settings.sft import SftSettings

MIB, GIB = 1 << 20, 1 << 30


@pytest.fixture
def spec(tmp_path, configure, plan_of, write_rows):
    """Plan a run of so many threads where a worker may take so much memory."""
    source = write_rows(tmp_path / "in.jsonl", [{"text": "hello"}])

    def make(n_threads: int, memory_bytes: int, **settings):
        made = plan_of(configure(tmp_path, source, threads=n_threads, **settings)).spec
        return dataclasses.replace(made, memory_bytes=memory_bytes)

    return make


@pytest.mark.parametrize(("n_threads", "memory_bytes"), [(2, 0), (64, 256 * GIB)])
def test_with_enough_memory_engines_get_200_mib_of_cache_for_each_thread(
    spec, n_threads, memory_bytes
):
    assert engine_bytes(spec(n_threads, memory_bytes)) == n_threads * 200 * MIB


@pytest.mark.parametrize("memory_bytes", [2 * GIB, 16 * GIB])
def test_a_worker_with_many_threads_fits_in_the_memory(spec, memory_bytes):
    made = spec(64, memory_bytes)
    total = BASE_BYTES + engine_bytes(made) + blocks_bytes(made)
    assert memory_bytes // 2 < total <= memory_bytes * 3 // 4
    assert blocks_bytes(made) <= memory_bytes // 4


def test_with_very_little_memory_engines_still_get_some_cache(spec):
    assert engine_bytes(spec(64, 300 * MIB)) == LEAST_ENGINE_BYTES


def test_the_setting_of_the_user_wins(spec):
    assert engine_bytes(spec(2, 300 * MIB, engine_memory_bytes=GIB)) == GIB


def test_blocks_in_flight_take_a_quarter_of_the_memory_but_never_less_than_two(spec):
    assert blocks_bytes(spec(2, 0)) == (6 * 4 + 3 * 2) * 5 * MIB
    assert blocks_bytes(spec(64, 0)) == (6 * 66 + 3 * 64) * 5 * MIB
    assert blocks_bytes(spec(64, 64 * GIB)) == (6 * 66 + 3 * 64) * 5 * MIB
    assert blocks_bytes(spec(64, 2 * GIB)) == 2 * GIB // 4
    assert blocks_bytes(spec(64, MIB)) == 2 * 6 * 5 * MIB


@pytest.mark.parametrize(
    ("n_threads", "memory_bytes", "expected"),
    [(1, 0, 0), (2, 0, 2), (64, 4 * GIB, 12), (64, 512 * MIB, 0)],
)
def test_threads_and_memory_bound_the_processes_that_render_chats(
    chat_run, n_threads, memory_bytes, expected
):
    made = chat_run([{"messages": [{"role": "user", "content": "a"}]}]).spec
    made = dataclasses.replace(
        made, n_threads=n_threads, memory_bytes=memory_bytes, template=own_source("chatml")
    )
    assert n_writers(made) == expected
    foreign = dataclasses.replace(made, template="{{ messages[0].content }}")
    assert n_writers(foreign) == max(expected, 1)
    if memory_bytes == 4 * GIB:
        blocks = blocks_bytes(made)
        total = BASE_BYTES + engine_bytes(made) + blocks + WRITER_BYTES * expected
        assert total <= memory_bytes * 3 // 4


def test_pretraining_has_no_process_that_renders_chats(spec):
    assert n_writers(spec(64, 0)) == 0


def test_a_worker_needs_its_base_its_engine_its_blocks_and_its_writers(spec):
    plain = spec(2, GIB)
    rest = BASE_BYTES + blocks_bytes(plain)
    assert worker_bytes(plain) == rest  # the reference has no cache
    fast = dataclasses.replace(plain, engine=dataclasses.replace(plain.engine, name="gigatoken"))
    assert worker_bytes(fast) == rest + engine_bytes(plain) <= GIB * 3 // 4
    chat = dataclasses.replace(plain, config=dataclasses.replace(plain.config, sft=SftSettings()))
    assert worker_bytes(chat) == rest + 2 * WRITER_BYTES
