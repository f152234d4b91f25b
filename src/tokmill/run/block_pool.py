"""Encode blocks on threads, a bounded number ahead; the results come in the order of the blocks.

A slow block holds up the results of those behind it, not their work: threads go on as long as the
finished blocks fit in the memory that blocks may take.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, Self

from tokmill.recipes.memory_bounds import BLOCK_COPIES, FINISHED_COPIES, blocks_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokmill.interrupts import DelayedInterrupts
    from tokmill.recipes.encoded import EncodedBlock
    from tokmill.recipes.spec import RunSpec
    from tokmill.recipes.table import Recipe
    from tokmill.sources.blocks import Block, SliceReader

_BUNDLE_BYTES = 256 << 10
_MOST_BUNDLED = 1024
"""Smaller blocks, as small files give them, are encoded together up to these limits."""


@dataclass(frozen=True, slots=True)
class Work:
    """A block of a slice, or the end of a slice, without a block."""

    slice_index: int
    reader: SliceReader
    block: Block | None
    is_end: bool = False


class _Bundle(NamedTuple):
    """Works that are encoded together, of `n_bytes`."""

    works: Sequence[Work]
    n_bytes: int


Result = tuple[Work, "EncodedBlock | None"]
"""A work and its encoded block; None for the end of a slice."""


@dataclass(slots=True)
class _Task:
    """The works of a bundle without their blocks, and what a thread made of them."""

    works: Sequence[Work]
    n_bytes: int
    encoded: Sequence[EncodedBlock] = ()
    error: BaseException | None = None
    is_done: bool = False

    @property
    def memory(self) -> int:
        """Return the bytes that the blocks take now."""
        return (FINISHED_COPIES if self.is_done else BLOCK_COPIES) * self.n_bytes

    def run(self, recipe: Recipe, blocks: Sequence[Block]) -> None:
        """Encode the blocks, on a thread."""
        try:
            self.encoded = recipe.process(blocks) if blocks else ()
        except BaseException as error:  # raised where the result is asked for
            self.error = error
        self.is_done = True

    def results(self) -> Iterator[Result]:
        """Yield the result of each work.

        Raises:
            BaseException: the encoding has failed.
        """
        if self.error is not None:
            raise self.error
        encoded = iter(self.encoded)
        for work in self.works:
            yield work, None if work.is_end else next(encoded)


class BlockPool:
    """Encodes blocks on threads; the blocks in flight are bounded in number and in bytes.

    The caller's thread and the others share only `SimpleQueue`s and flags. An interrupt of the
    caller inside a `Future` or `Event`, which are Python code, can leave their lock locked, and a
    thread would wait for it without end.
    """

    def __init__(
        self, spec: RunSpec, recipe: Recipe, works: Iterator[Work], interrupts: DelayedInterrupts
    ) -> None:
        self._recipe = recipe
        self._works = works
        self._interrupts = interrupts
        self._n_threads, self._limit_bytes = spec.n_threads, blocks_bytes(spec)
        self._threads: list[threading.Thread] = []
        self._pending: deque[_Task] = deque()
        self._tasks: SimpleQueue[tuple[_Task, list[Block]] | None] = SimpleQueue()
        self._ends: SimpleQueue[None] = SimpleQueue()
        """An item for each task that is done; one may be lost to an interrupt, its flag is not."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Wait for the blocks that are being encoded; no other is begun."""
        self._cancel()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()

    def __iter__(self) -> Iterator[Result]:
        """Yield the result of every work; to be called once."""
        for bundle in _bundles(self._works):
            # One result for each bundle that is read: neither side waits for the other to end.
            if self._pending and self._pending[0].is_done:
                yield from self._oldest()
            while not self._has_room(bundle.n_bytes):
                if self._pending[0].is_done:
                    yield from self._oldest()
                else:
                    self._ends.get()
            with self._interrupts.delayed():
                self._submit(bundle)
            del bundle
        while self._pending:
            yield from self._oldest()

    def _has_room(self, n_bytes: int) -> bool:
        """Return whether a bundle may be begun; one that is alone always may."""
        memory = sum(task.memory for task in self._pending) + BLOCK_COPIES * n_bytes
        return not self._pending or (
            self._n_unfinished() < most_unfinished(self._n_threads) and memory <= self._limit_bytes
        )

    def _n_unfinished(self) -> int:
        return sum(not task.is_done for task in self._pending)

    def _submit(self, bundle: _Bundle) -> None:
        task = _Task([replace(work, block=None) for work in bundle.works], bundle.n_bytes)
        self._pending.append(task)
        blocks = [work.block for work in bundle.works if work.block is not None]
        self._tasks.put((task, blocks))
        if len(self._threads) < min(self._n_threads, self._n_unfinished()):
            self._threads.append(threading.Thread(target=self._encode, name="tokmill"))
            self._threads[-1].start()

    def _encode(self) -> None:
        while (item := self._tasks.get()) is not None:
            item[0].run(self._recipe, item[1])
            del item  # its blocks would stay in memory until the next
            self._ends.put(None)

    def _oldest(self) -> Iterator[Result]:
        task = self._pending[0]
        self._wait_for(task)
        yield from task.results()
        self._pending.popleft()

    def _wait_for(self, task: _Task) -> None:
        while not task.is_done:
            self._ends.get()

    def _cancel(self) -> None:
        """Take away the blocks that no thread has begun."""
        with suppress(Empty):
            while True:
                self._tasks.get_nowait()


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
