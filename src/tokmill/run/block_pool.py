"""Encode blocks on threads, a bounded number ahead; the results come in the order of the blocks.

A slow block holds up the results of those behind it, not their work: threads go on as long as the
finished blocks fit in the memory that blocks may take.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from tokmill.recipes.memory_bounds import BLOCK_COPIES, FINISHED_COPIES, blocks_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future, ThreadPoolExecutor

    from tokmill.recipes.encoded import EncodedBlock
    from tokmill.recipes.spec import RunSpec
    from tokmill.recipes.table import Recipe
    from tokmill.sources.blocks import Block, SliceReader

_BUNDLE_BYTES = 256 << 10
_MOST_BUNDLED = 1024
"""Smaller blocks, as small files give them, are encoded together up to these limits."""


@dataclass(frozen=True, slots=True)
class Work:
    """A block of a slice, or the end of a slice, without a block.

    `number`: of the work in its part, from 0.
    """

    number: int
    slice_index: int
    reader: SliceReader
    block: Block | None
    is_end: bool = False


class _Bundle(NamedTuple):
    """Works that are encoded together, of `n_bytes`."""

    works: Sequence[Work]
    n_bytes: int

    def without_blocks(self) -> _Bundle:
        """Return the bundle without its blocks, so that their memory is free."""
        return _Bundle([replace(work, block=None) for work in self.works], self.n_bytes)


Result = tuple[Work, "EncodedBlock | None"]
"""A work and its encoded block; None for the end of a slice."""


class BlockPool:
    """Encodes blocks on threads; the blocks in flight are bounded in number and in bytes."""

    def __init__(
        self, pool: ThreadPoolExecutor, recipe: Recipe, works: Iterator[Work], spec: RunSpec
    ) -> None:
        self._pool = pool
        self._recipe = recipe
        self._works = works
        self._load = _Load(most_unfinished(spec.n_threads), blocks_bytes(spec))
        self._pending: deque[tuple[_Bundle, Future[list[EncodedBlock]]]] = deque()
        self._ready: deque[Result] = deque()

    def __iter__(self) -> Iterator[Result]:
        """Yield the result of every work; to be called once."""
        for bundle in _bundles(self._works):
            # One result for each bundle that is read: neither side waits for the other to end.
            if self._is_oldest_done():
                yield from self._oldest()
            while True:
                self._load.changed.clear()
                if self._load.has_room(bundle.n_bytes):
                    break
                if self._is_oldest_done():
                    yield from self._oldest()
                else:
                    self._load.changed.wait()
            self._submit(bundle)
            del bundle
        while self._pending:
            yield from self._oldest()

    def _submit(self, bundle: _Bundle) -> None:
        self._load.begin(bundle.n_bytes)
        future = self._pool.submit(_process, self._recipe, bundle)
        self._pending.append((bundle.without_blocks(), future))
        n_bytes = bundle.n_bytes
        future.add_done_callback(lambda _: self._load.finish(n_bytes))

    def _is_oldest_done(self) -> bool:
        return bool(self._pending) and self._pending[0][1].done()

    def _oldest(self) -> Iterator[Result]:
        self._ready = _results(*self._pending[0])
        bundle, _ = self._pending.popleft()
        while self._ready:
            yield self._ready[0]
            self._ready.popleft()
        self._load.leave(bundle.n_bytes)

    def finished_from(self, number: int) -> Iterator[Result]:
        """Yield the results from a work on that are ready or being made; no more work is begun.

        May be called after an interrupt anywhere: then a work can be in both queues.
        """
        self.cancel()
        under_way = (_results(*pair) for pair in self._pending if not pair[1].cancelled())
        for work, encoded in chain(list(self._ready), chain.from_iterable(under_way)):
            if work.number > number:
                return
            if work.number == number:
                yield work, encoded
                number += 1

    def cancel(self) -> None:
        """Cancel the blocks that no thread has begun."""
        for _, future in self._pending:
            future.cancel()


class _Load:
    """The blocks in flight: how many are not finished, and the memory that all of them take.

    `changed` is set whenever a block is finished.
    """

    def __init__(self, most_unfinished: int, limit_bytes: int) -> None:
        self.changed = threading.Event()
        self._lock = threading.Lock()
        self._most_unfinished = most_unfinished
        self._limit_bytes = limit_bytes
        self._n_unfinished = self._n_finished = 0
        self._bytes = 0

    def has_room(self, n_bytes: int) -> bool:
        """Return whether a bundle may be begun; one that is alone always may."""
        with self._lock:
            return not (self._n_unfinished or self._n_finished) or (
                self._n_unfinished < self._most_unfinished
                and self._bytes + BLOCK_COPIES * n_bytes <= self._limit_bytes
            )

    def begin(self, n_bytes: int) -> None:
        with self._lock:
            self._n_unfinished += 1
            self._bytes += BLOCK_COPIES * n_bytes

    def finish(self, n_bytes: int) -> None:
        with self._lock:
            self._n_unfinished -= 1
            self._n_finished += 1
            self._bytes -= (BLOCK_COPIES - FINISHED_COPIES) * n_bytes
        self.changed.set()

    def leave(self, n_bytes: int) -> None:
        with self._lock:
            self._n_finished -= 1
            self._bytes -= FINISHED_COPIES * n_bytes


def most_unfinished(n_threads: int) -> int:
    """Return how many blocks may be encoded or wait for a thread: no thread waits for the reader.

    The calling thread cannot read while it writes a block: meanwhile threads take those that wait.
    """
    return n_threads + max(2, n_threads // 4)


def _bundles(works: Iterator[Work]) -> Iterator[_Bundle]:
    """Yield small blocks in bundles; a large one alone."""
    gathered: list[Work] = []
    n_bytes = 0
    for work in works:
        weight = 0 if work.block is None else work.block.n_bytes
        if gathered and (n_bytes + weight > _BUNDLE_BYTES or len(gathered) >= _MOST_BUNDLED):
            yield _Bundle(gathered, n_bytes)
            gathered, n_bytes = [], 0
        gathered.append(work)
        n_bytes += weight
        del work
        if n_bytes >= _BUNDLE_BYTES:
            yield _Bundle(gathered, n_bytes)
            gathered, n_bytes = [], 0
    if gathered:
        yield _Bundle(gathered, n_bytes)


def _process(recipe: Recipe, bundle: _Bundle) -> list[EncodedBlock]:
    blocks = [work.block for work in bundle.works if work.block is not None]
    return recipe.process(blocks) if blocks else []


def _results(bundle: _Bundle, future: Future[list[EncodedBlock]]) -> deque[Result]:
    encoded = iter(future.result())
    return deque((work, None if work.is_end else next(encoded)) for work in bundle.works)
