"""Encode blocks on threads, a bounded number ahead; the results come in the order of the blocks."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from tokmill.recipes.memory_bounds import ahead_bytes

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
        self._limit_bytes = ahead_bytes(spec)
        self._most = spec.n_threads + 1
        self._pending: deque[tuple[_Bundle, Future[list[EncodedBlock]]]] = deque()
        self._ready: deque[Result] = deque()

    def __iter__(self) -> Iterator[Result]:
        """Yield the result of every work; to be called once."""
        in_flight = 0
        for bundle in _bundles(self._works):
            while self._pending and (
                in_flight + bundle.n_bytes > self._limit_bytes or len(self._pending) > self._most
            ):
                in_flight -= self._pending[0][0].n_bytes
                yield from self._oldest()
            future = self._pool.submit(_process, self._recipe, bundle)
            self._pending.append((bundle.without_blocks(), future))
            in_flight += bundle.n_bytes
            del bundle
        while self._pending:
            yield from self._oldest()

    def _oldest(self) -> Iterator[Result]:
        self._ready = _results(*self._pending[0])
        self._pending.popleft()
        while self._ready:
            yield self._ready[0]
            self._ready.popleft()

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
