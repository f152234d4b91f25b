"""Fetch the shards of a training from a store ahead of time, in the order of their use.

A thread runs through the batches that come, says in which order their files are needed, and fetches
those that are not in the cache. It looks no further than to what the cache holds, and further only
for the order by which files are evicted. Where a process is only told which rows to read, as a
worker of torch's DataLoader is, the process with the sampler fetches for it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokmill.errors import TokmillError
from tokmill.stores.connections import begun
from tokmill.words import size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future

    from tokmill.dataset.cached_dataset import CachedDataset
    from tokmill.dataset.object_cache import ObjectCache
    from tokmill.loader.sequence import Located, SampleSequence, Step
    from tokmill.loader.source import RowSource

_LOG = logging.getLogger("tokmill")

CHUNK_ROWS = 64
"""Rows whose files are noted together."""

CHUNKS_AT_ONCE = 64
"""Chunks that are noted before the next look for what is to be fetched."""

MOST_ROWS = 1 << 20
"""Rows ahead whose files are known."""

_MOST_USES = 1 << 14
"""Uses of files that are noted; a look ends there, too."""

FETCHES = 4
"""Files that are fetched at a time."""

_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 0.2


class _Use(NamedTuple):
    """A file that is read in a chunk of rows."""

    dataset: CachedDataset
    name: str


class _Chunk(NamedTuple):
    """The files of some steps, in the order of their first use. `stop`: the step after them."""

    stop: int
    n_rows: int
    uses: dict[_Use, None]


def fetched_ahead(sequence: SampleSequence, key: int, stop: int | None) -> Iterator[Step]:
    """Return the steps of a sequence, of which files in stores are fetched ahead; see `steps`."""
    if all(source.stored is None for source in sequence.sources):
        return sequence.steps(key, stop)
    _warn_of_small_cache(sequence)
    return _followed(sequence, key, stop)


_warned_of: set[ObjectCache] = set()


def _warn_of_small_cache(sequence: SampleSequence) -> None:
    """Warn that the order of all rows fetches shards again and again, if they do not fit."""
    needed: dict[ObjectCache, int] = {}
    for source in sequence.sources:
        if source.stored is not None:
            cache = source.stored.cache
            needed[cache] = needed.get(cache, 0) + source.n_stored_bytes
    for cache, n_bytes in needed.items():
        is_said = cache in _warned_of
        if sequence.shuffle is True and n_bytes > cache.n_bytes and not is_said:
            _warned_of.add(cache)
            _LOG.warning(
                "%s: the cache holds %s of %s: almost every row fetches a shard again; use "
                'shuffle="blocks", or more cache_bytes',
                cache.directory,
                size(cache.n_bytes),
                size(n_bytes),
            )


def _followed(sequence: SampleSequence, key: int, stop: int | None) -> Iterator[Step]:
    with contextlib.closing(Ahead(sequence.rows, sequence.steps(key, stop))) as ahead:
        for number, step in enumerate(sequence.steps(key, stop)):
            ahead.reached(number)
            yield step


class Ahead:
    """A thread that fetches the files of steps; it ends with `close`, or with the process."""

    def __init__(self, sources: Sequence[RowSource], steps: Iterator[Step]) -> None:
        self._sources, self._steps = sources, steps
        self._chunks: deque[_Chunk] = deque()
        self._n_rows = self._n_uses = self._n_steps = 0
        self._fetching: dict[_Use, Future[bool]] = {}
        self._has_steps = True
        self._reached = 0
        self._is_closed = False
        self._moved = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tokmill-ahead", daemon=True)
        self._thread.start()

    def reached(self, step: int) -> None:
        """Note which step is read next."""
        self._reached = step
        if self._chunks and self._chunks[0].stop <= step:
            self._moved.set()

    def close(self) -> None:
        """End the thread; a file that is being fetched is not waited for."""
        self._is_closed = True
        self._moved.set()

    def _run(self) -> None:
        try:
            while not self._is_closed:
                self._moved.clear()
                self._forget_read()
                is_full = self._take_results()
                if not is_full and self._begin_fetch():
                    continue
                n_noted = sum(self._look_on() for _ in range(CHUNKS_AT_ONCE))
                if is_full or not n_noted:
                    time.sleep(_PAUSE_S)  # readers need the processor more than a look at the order
                    self._moved.wait(_LONGEST_PAUSE_S)
        except TokmillError as error:
            # Whoever needs the file meets the same error, with a batch.
            _LOG.debug("fetching ahead has ended: %s", error)

    def _take_results(self) -> bool:
        """Forget the fetches that are done; return whether one had no room. Raises their errors."""
        is_full = False
        for use, future in list(self._fetching.items()):
            if future.done():
                del self._fetching[use]
                is_full = is_full or not future.result()
        return is_full

    def _forget_read(self) -> None:
        """Drop the chunks that were read, but the last of them: workers may be behind."""
        while len(self._chunks) > 1 and self._chunks[1].stop <= self._reached:
            done = self._chunks.popleft()
            self._n_rows -= done.n_rows
            self._n_uses -= len(done.uses)

    def _look_on(self) -> bool:
        """Note the files of the next rows; return whether there were some, and room to note them.

        The order that it makes known is what all processes evict by.
        """
        if not self._has_steps or self._n_rows >= MOST_ROWS or self._n_uses >= _MOST_USES:
            return False
        steps: list[Located] = []
        n_rows = 0
        while n_rows < CHUNK_ROWS:
            step = next(self._steps, None)
            if step is None:
                self._has_steps = False
                break
            steps.append(step[0])
            n_rows += len(step[0].numbers)
        if steps:
            self._n_steps += len(steps)
            self._note(_Chunk(self._n_steps, n_rows, dict.fromkeys(self._uses_of(steps))))
        return bool(steps)

    def _note(self, chunk: _Chunk) -> None:
        """Add a chunk; one with the files of the last one makes that longer."""
        self._n_rows += chunk.n_rows
        if self._chunks and self._chunks[-1].uses.keys() == chunk.uses.keys():
            last = self._chunks.pop()
            self._n_uses -= len(last.uses)
            chunk = _Chunk(chunk.stop, last.n_rows + chunk.n_rows, last.uses)
        self._chunks.append(chunk)
        self._n_uses += len(chunk.uses)

    def _uses_of(self, steps: list[Located]) -> Iterator[_Use]:
        """Yield the files that the rows of steps are read of."""
        numbers = np.concatenate([rows.numbers for rows in steps])
        sources = np.concatenate([rows.sources for rows in steps])
        for number, source in enumerate(self._sources):
            own = numbers[sources == number]
            if source.stored is not None and len(own):
                for name in source.names_read(own):
                    yield _Use(source.stored, name)

    def _begin_fetch(self) -> bool:
        """Begin to fetch the first file that is neither there nor on its way; False without one."""
        order = list(dict.fromkeys(use for chunk in self._chunks for use in chunk.uses))
        for dataset in dict.fromkeys(use.dataset for use in order):
            own = (use for use in order if use.dataset.cache is dataset.cache)
            dataset.cache.set_order(use.dataset.entries[use.name] for use in own)
        room = {use.dataset.cache: use.dataset.cache.n_bytes for use in order}
        for rank, use in enumerate(order):
            entry = use.dataset.entries[use.name]
            room[use.dataset.cache] -= entry.n_bytes
            if room[use.dataset.cache] < 0 or len(self._fetching) == FETCHES:
                return False
            if use not in self._fetching and not use.dataset.cache.has(entry):
                future = begun(partial(use.dataset.fetch, use.name, rank))
                self._fetching[use] = future
                future.add_done_callback(lambda _: self._moved.set())
                return True
        return False
