from __future__ import annotations

import dataclasses

import pytest

from tokmill.chat.own_templates import own_source
from tokmill.recipes.memory_bounds import (
    BASE_BYTES,
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


def test_a_worker_needs_its_base_its_engine_its_blocks_and_its_writers(spec):
    plain = spec(2, GIB)
    rest = BASE_BYTES + blocks_bytes(plain)
    assert worker_bytes(plain) == rest  # the reference has no cache
    fast = dataclasses.replace(plain, engine=dataclasses.replace(plain.engine, name="gigatoken"))
    assert worker_bytes(fast) == rest + engine_bytes(plain) <= GIB * 3 // 4
    chat = dataclasses.replace(plain, config=dataclasses.replace(plain.config, sft=SftSettings()))
    assert worker_bytes(chat) == rest + 2 * WRITER_BYTES
