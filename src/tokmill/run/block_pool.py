"""Encode blocks on threads, a bounded number ahead; the results come in the order of the blocks.

A slow block holds up the results of those behind it, not their work: threads go on as long as the
finished blocks fit in the memory that blocks may take.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tokmill.recipes.memory_bounds import BLOCK_COPIES, FINISHED_COPIES, blocks_bytes

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from tokmill.interrupts import DelayedInterrupts
    from tokmill.recipes.encoded import EncodedBlock
    from tokmill.recipes.spec import RunSpec
    from tokmill.recipes.table import Recipe
    from tokmill.sources.blocks import Block, SliceReader

_BUNDLE_BYTES = 256 << 10
_MOST_BUNDLED = 1024
"""Smaller blocks, as small files give them, are encoded together up to these limits."""


class Work(NamedTuple):
    """A block of a slice, or the end of a slice, without a block."""

    slice_index: int
    reader: SliceReader
    block: Block | None
    is_end: bool = False


Result = tuple[Work, "EncodedBlock | None"]
"""A work and its encoded block; None for the end of a slice."""


@dataclass(slots=True)
class _Bundle:
    """Works that are encoded together, without their blocks; `encoded`: a block for each."""

    works: Sequence[Work]
    n_bytes: int
    encoded: Future[Sequence[EncodedBlock]] = field(init=False)
    is_done: bool = False

    def encode(self, recipe: Recipe, blocks: Sequence[Block]) -> Sequence[EncodedBlock]:
        """Encode the blocks, on a thread."""
        try:
            return recipe.process(blocks) if blocks else ()
        finally:
            self.is_done = True


def encode_ahead(
    spec: RunSpec, recipe: Recipe, works: Iterator[Work], interrupts: DelayedInterrupts
) -> Generator[Result, None, None]:
    """Yield the result of every work, whose own block is gone by then.

    Close the iterator: this waits for the blocks that are being encoded, and begins no other.

    Interrupts are delayed while executor and futures are called: one that comes inside their
    conditions, which are Python code, can leave a lock locked, and a thread would wait for ever.
    """
    pool, pending = ThreadPoolExecutor(spec.n_threads, "tokmill"), deque[_Bundle]()
    most_unfinished, most_bytes = _most_unfinished(spec.n_threads), blocks_bytes(spec)

    def has_room(n_bytes: int) -> bool:
        """Return whether blocks may be begun; those that are alone always may."""
        unfinished_bytes = [bundle.n_bytes for bundle in pending if not bundle.is_done]
        finished_bytes = sum(bundle.n_bytes for bundle in pending) - sum(unfinished_bytes)
        memory = BLOCK_COPIES * (sum(unfinished_bytes) + n_bytes) + FINISHED_COPIES * finished_bytes
        return not pending or (len(unfinished_bytes) < most_unfinished and memory <= most_bytes)

    def oldest() -> Iterator[Result]:
        with interrupts.delayed():
            encoded = iter(pending[0].encoded.result())
        for work in pending[0].works:
            yield work, None if work.is_end else next(encoded)
        pending.popleft()

    try:
        for bundled, n_bytes in _bundles(works):
            # One result for each bundle that is read: neither side waits for the other to end.
            if pending and pending[0].is_done:
                yield from oldest()
            while not has_room(n_bytes):
                if pending[0].is_done:
                    yield from oldest()
                else:
                    with interrupts.delayed():
                        unfinished = [b.encoded for b in pending if not b.is_done]
                        wait(unfinished, return_when=FIRST_COMPLETED)
            blocks = [work.block for work in bundled if work.block is not None]
            bundle = _Bundle([work._replace(block=None) for work in bundled], n_bytes)
            with interrupts.delayed():
                bundle.encoded = pool.submit(bundle.encode, recipe, blocks)
                pending.append(bundle)
            del bundled, blocks  # or they would stay in memory until the next are read
        while pending:
            yield from oldest()
    finally:
        with interrupts.delayed():
            pool.shutdown(cancel_futures=True)


def _most_unfinished(n_threads: int) -> int:
    """Return how many blocks may be encoded or wait for a thread: no thread waits for the reader.

    The calling thread cannot read while it writes a block: meanwhile threads take those that wait.
    """
    return n_threads + max(2, n_threads // 4)


def _bundles(works: Iterator[Work]) -> Iterator[tuple[list[Work], int]]:
    """Yield small blocks in bundles, a large one alone, and the bytes of each bundle."""
    gathered: list[Work] = []
    n_bytes = 0
    for work in works:
        weight = 0 if work.block is None else work.block.n_bytes
        if gathered and (n_bytes + weight > _BUNDLE_BYTES or len(gathered) >= _MOST_BUNDLED):
            yield gathered, n_bytes
            gathered, n_bytes = [], 0
        gathered.append(work)
        n_bytes += weight
        del work
        if n_bytes >= _BUNDLE_BYTES:
            yield gathered, n_bytes
            gathered, n_bytes = [], 0
    if gathered:
        yield gathered, n_bytes
