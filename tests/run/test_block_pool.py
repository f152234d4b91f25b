from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pytest

from tokmill.recipes.memory_bounds import ahead_bytes
from tokmill.recipes.pretrain import PretrainRecipe
from tokmill.run.part import run_part
from tokmill.values import TokenBatch

BATCH_BYTES = 300_000
"""More than the 256 KiB up to which blocks are processed together."""

DEADLINE_S = 30


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
        rows = [{"text": "x" * 9_000}] * (n_blocks * BATCH_BYTES // 9_000)
        source = write_rows(tmp_path / "in.jsonl", rows)
        return plan_of(configure(tmp_path, source, threads=n_threads, batch_bytes=BATCH_BYTES))

    return make


@pytest.mark.parametrize("n_threads", [1, 2, 16, 64])
def test_as_many_blocks_are_encoded_at_once_as_there_are_threads(plan, n_threads):
    made = plan(n_threads, 3 * n_threads + 4)
    recipe = PretrainRecipe(made.spec)
    recipe.engine = engine = Gathering(n_threads)
    record = run_part(made.spec, made.parts[0], lambda: recipe, lambda progress: None)
    assert engine.most_at_once == n_threads
    assert record.counts().documents == (3 * n_threads + 4) * BATCH_BYTES // 9_000


class Holding:
    """A recipe whose first block waits until the others, read ahead of it, are at their bound.

    `n_bytes`: what has been taken from the reader and not been reported as written.
    """

    def __init__(self, recipe: PretrainRecipe, limit_bytes: int) -> None:
        self.schema, self.dtype, self.renderer = recipe.schema, recipe.dtype, recipe.renderer
        self._recipe = recipe
        self._limit_bytes = limit_bytes
        self._changed = threading.Condition()
        self._is_first = True
        self.n_bytes = self.most_bytes = 0

    def process(self, blocks):
        n_bytes = sum(block.n_bytes for block in blocks)
        with self._changed:
            is_first, self._is_first = self._is_first, False
            self.n_bytes += n_bytes
            self.most_bytes = max(self.most_bytes, self.n_bytes)
            self._changed.notify_all()
            room = 2 * BATCH_BYTES
            if is_first:
                full = self._limit_bytes - room
                assert self._changed.wait_for(lambda: self.n_bytes >= full, DEADLINE_S)
        return self._recipe.process(blocks)

    def written(self, progress) -> None:
        with self._changed:
            self.n_bytes -= progress.input_bytes


@pytest.mark.parametrize("n_threads", [2, 16])
def test_bytes_in_flight_stay_in_their_bound(plan, n_threads):
    made = plan(n_threads, 4 * n_threads + 9)
    limit = (n_threads + 2) * 2 * BATCH_BYTES
    assert ahead_bytes(made.spec) == limit
    recipe = PretrainRecipe(made.spec)
    recipe.engine = Gathering(1)
    holding = Holding(recipe, (n_threads + 2) * BATCH_BYTES)
    run_part(made.spec, made.parts[0], lambda: holding, holding.written)
    assert n_threads * BATCH_BYTES < holding.most_bytes <= limit
    assert holding.n_bytes == 0
