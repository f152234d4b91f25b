"""Encode blocks on threads, a bounded number ahead; the results come in the order of the blocks.

A slow block holds up the results of those behind it, not their work: threads go on as long as the
finished blocks fit in the memory that blocks may take.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from tokmill.recipes.memory_bounds import BLOCK_COPIES, FINISHED_COPIES, blocks_bytes

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from tokmill.interrupts import DelayedInterrupts
    from tokmill.recipes.encoded import EncodedBlock
    from tokmill.recipes.spec import RunSpec
    from tokmill.recipes.table import Recipe
    from tokmill.sources.formats import Block

Key = TypeVar("Key")
"""Says where a block belongs."""

_BUNDLE_BYTES = 256 << 10
_MOST_BUNDLED = 1024
"""Smaller blocks, as small files give them, are encoded together up to these limits."""


@dataclass(slots=True)
class _Bundle(Generic[Key]):
    """Blocks that are encoded together, of `n_bytes`; `keys`: each with whether it has a block."""

    keys: Sequence[tuple[Key, bool]]
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
    spec: RunSpec,
    recipe: Recipe,
    blocks: Iterable[tuple[Key, Block | None]],
    interrupts: DelayedInterrupts,
) -> Generator[tuple[Key, EncodedBlock | None], None, None]:
    """Yield each key with its encoded block, or with None if it has no block, in order.

    Close the iterator: this waits for the blocks that are being encoded, and begins no other.

    Interrupts are delayed while executor and futures are called: one that comes inside their
    conditions, which are Python code, can leave a lock locked, and a thread would wait for ever.
    """
    # No thread waits for the reader: while the calling thread writes, they take blocks that wait.
    most_unfinished = spec.n_threads + max(2, spec.n_threads // 4)
    most_bytes = blocks_bytes(spec)
    pool, pending = ThreadPoolExecutor(spec.n_threads, "tokmill"), deque[_Bundle[Key]]()

    def has_room(n_bytes: int) -> bool:
        """Return whether blocks may be begun; those that are alone always may."""
        n_unfinished, memory = 0, BLOCK_COPIES * n_bytes
        for bundle in pending:
            is_done = bundle.is_done  # it may change between the next two lines
            n_unfinished += not is_done
            memory += (FINISHED_COPIES if is_done else BLOCK_COPIES) * bundle.n_bytes
        return not pending or (n_unfinished < most_unfinished and memory <= most_bytes)

    def oldest() -> Iterator[tuple[Key, EncodedBlock | None]]:
        with interrupts.delayed():
            encoded = iter(pending[0].encoded.result())
        for key, has_block in pending[0].keys:
            yield key, next(encoded) if has_block else None
        pending.popleft()

    try:
        for bundled, n_bytes in _bundles(blocks):
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
            bundle = _Bundle([(key, block is not None) for key, block in bundled], n_bytes)
            of_bundle = [block for _, block in bundled if block is not None]
            with interrupts.delayed():
                bundle.encoded = pool.submit(bundle.encode, recipe, of_bundle)
                pending.append(bundle)
            del bundled, of_bundle  # or they would stay in memory until the next are read
        while pending:
            yield from oldest()
    finally:
        with interrupts.delayed():
            pool.shutdown(cancel_futures=True)


def _bundles(
    blocks: Iterable[tuple[Key, Block | None]],
) -> Iterator[tuple[list[tuple[Key, Block | None]], int]]:
    """Yield small blocks in bundles, a large one alone, and the bytes of each bundle."""
    bundled: list[tuple[Key, Block | None]] = []
    n_bytes = 0
    for key, block in blocks:
        block_bytes = 0 if block is None else block.n_bytes
        if bundled and (n_bytes + block_bytes > _BUNDLE_BYTES or len(bundled) >= _MOST_BUNDLED):
            yield bundled, n_bytes
            bundled, n_bytes = [], 0
        bundled.append((key, block))
        n_bytes += block_bytes
        del block
        if n_bytes >= _BUNDLE_BYTES:
            yield bundled, n_bytes
            bundled, n_bytes = [], 0
    if bundled:
        yield bundled, n_bytes
