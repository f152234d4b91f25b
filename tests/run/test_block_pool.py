from __future__ import annotations

import sys
import threading

import numpy as np
import pyarrow as pa
import pytest

from tokmill.interrupts import DelayedInterrupts
from tokmill.place import open_place
from tokmill.recipes.memory_bounds import BLOCK_COPIES, FINISHED_COPIES, blocks_bytes
from tokmill.recipes.pretrain import PretrainRecipe
from tokmill.run.part import run_part
from tokmill.values import TokenBatch

BATCH_BYTES = 300_000
"""More than the 256 KiB up to which blocks are processed together."""

DEADLINE_S = 300


class Gathering:
    """An engine of one token a document, whose calls wait until `n` of them stand side by side."""

    name = "gathering"
    renewable = False
    concurrent = True

    def __init__(self, n: int) -> None:
        self._n = n
        self._inside = 0
        self._changed = threading.Condition()
        self.most_at_once = 0

    def encode(self, text: pa.LargeStringArray, laps: object) -> TokenBatch:
        with self._changed:
            self._inside += 1
            self.most_at_once = max(self.most_at_once, self._inside)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self.most_at_once >= self._n, DEADLINE_S)
            self._inside -= 1
        return one_token_each(text)


def one_token_each(text: pa.LargeStringArray) -> TokenBatch:
    return TokenBatch(np.full(len(text), 5, np.uint32), np.arange(len(text) + 1, dtype=np.int64))


@pytest.fixture
def plan(tmp_path, configure, plan_of, write_rows):
    """Plan a part of at least `n_blocks` blocks for some threads."""

    def make(n_threads: int, n_blocks: int):
        rows = [
            {"text": "y" * 9_000},
            *[{"text": "x" * 9_000}] * (n_blocks * BATCH_BYTES // 9_000 - 1),
        ]
        source = write_rows(tmp_path / "in.jsonl", rows)
        return plan_of(configure(tmp_path, source, threads=n_threads, block_bytes=BATCH_BYTES))

    return make


@pytest.mark.parametrize("n_threads", [1, 16])
def test_as_many_blocks_are_encoded_at_once_as_there_are_threads(plan, n_threads):
    made = plan(n_threads, 3 * n_threads + 4)
    recipe = PretrainRecipe(made.spec)
    recipe.engine = engine = Gathering(n_threads)
    record = run_part(
        made.spec,
        made.parts[0],
        open_place(made.spec.config.output.dir),
        recipe,
        lambda progress: None,
    )
    assert engine.most_at_once == n_threads
    assert record.total().documents == (3 * n_threads + 4) * BATCH_BYTES // 9_000


class Holding:
    """A recipe whose first block waits until `n_behind` blocks behind it are finished.

    `most_bytes`: the most that blocks took at once, by the copies that each counts as.
    """

    def __init__(self, recipe: PretrainRecipe, n_behind: int) -> None:
        self.schema, self.dtype, self.renderer = recipe.schema, recipe.dtype, recipe.renderer
        self._recipe, self.blocks_of = recipe, recipe.blocks_of
        self._n_behind = n_behind
        self._changed = threading.Condition()
        self.n_finished = self.n_bytes = self.most_bytes = 0

    def process(self, blocks):
        n_bytes = sum(block.n_bytes for block in blocks)
        with self._changed:
            self._count(BLOCK_COPIES * n_bytes)
            if b"yyy" in blocks[0].data:
                assert self._changed.wait_for(self._is_far_behind, DEADLINE_S)
        encoded = self._recipe.process(blocks)
        with self._changed:
            self.n_finished += 1
            self._count((FINISHED_COPIES - BLOCK_COPIES) * n_bytes)
            self._changed.notify_all()
        return encoded

    def _is_far_behind(self) -> bool:
        return self.n_finished >= self._n_behind

    def _count(self, n_bytes: int) -> None:
        self.n_bytes += n_bytes
        self.most_bytes = max(self.most_bytes, self.n_bytes)

    def written(self, progress) -> None:
        with self._changed:
            self._count(-FINISHED_COPIES * progress.input_bytes)


@pytest.mark.parametrize("n_threads", [2, 16])
def test_threads_go_on_behind_a_slow_block_within_the_memory_of_blocks(plan, n_threads):
    made = plan(n_threads, 6 * n_threads + 9)
    limit = blocks_bytes(made.spec)
    n_copies = BLOCK_COPIES * (n_threads + 2) + FINISHED_COPIES * n_threads
    assert limit == n_copies * 2 * BATCH_BYTES
    recipe = PretrainRecipe(made.spec)
    recipe.engine = Gathering(1)
    holding = Holding(recipe, n_behind=2 * n_threads)
    run_part(
        made.spec, made.parts[0], open_place(made.spec.config.output.dir), holding, holding.written
    )
    behind = BLOCK_COPIES + FINISHED_COPIES * 2 * n_threads
    assert behind * BATCH_BYTES <= holding.most_bytes <= limit
    assert holding.n_bytes == 0


def test_no_lock_of_python_is_taken_where_an_interrupt_may_come(plan, monkeypatch):
    """An interrupt inside `Condition.__enter__` leaves its lock locked: a thread waits for ever."""
    made, delays, callers = plan(2, 12), [], []

    class Watched(DelayedInterrupts):
        def __init__(self) -> None:
            super().__init__()
            delays.append(self)

    def watch(frame, event, argument):
        is_lock = event == "call" and frame.f_code is threading.Condition.__enter__.__code__
        if is_lock and not any(one._is_delaying for one in delays):
            callers.append(frame.f_back.f_code.co_qualname)

    monkeypatch.setattr("tokmill.run.part.DelayedInterrupts", Watched)
    recipe = PretrainRecipe(made.spec)
    recipe.engine = Gathering(2)
    sys.setprofile(watch)
    try:
        run_part(
            made.spec,
            made.parts[0],
            open_place(made.spec.config.output.dir),
            recipe,
            lambda progress: None,
        )
    finally:
        sys.setprofile(None)
    assert delays
    assert callers == []
