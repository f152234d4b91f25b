"""Holds the engine of a process, and loads it anew when its caches have grown past their bound."""

from __future__ import annotations

import ctypes
import os
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tokmill.engines.engine import Engine
    from tokmill.timing import StageTimer
    from tokmill.values import TokenBatch

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class EngineMemory:
    """What the engines of a process may learn, together, held against what the process takes.

    Anonymous memory is compared with its value right after the engines were loaded. What is known
    to be in memory for another reason is taken off, see `holding`; one block may overshoot when a
    cache doubles. Without /proc: nothing is ever too much.
    """

    def __init__(self, memory_bytes: int) -> None:
        self.changed = threading.Condition()
        self.is_outgrown = False
        self._memory_bytes = memory_bytes
        self._engines: list[RenewableEngine] = []
        self._baseline_bytes = 0
        self._held = threading.Lock()  # its own: a block that comes does not wait for a load
        self._held_bytes = 0

    def add(self, engine: RenewableEngine) -> None:
        """Count an engine among those that share the bound."""
        self._engines.append(engine)

    @contextmanager
    def holding(self, n_bytes: int) -> Iterator[None]:
        """Take off up to `n_bytes` while the context is open: a block in work, in all its copies.

        Or one long record would look like a cache that has grown.
        """
        with self._held:
            self._held_bytes += n_bytes
        try:
            yield
        finally:
            with self._held:
                self._held_bytes -= n_bytes

    def load(self, load: Callable[[], Engine]) -> Engine:
        """Load an engine; what the process takes then is no growth. With `changed` held."""
        trim_heap()
        before = anonymous_bytes()
        engine = load()
        trim_heap()
        after = anonymous_bytes()
        if any(one.is_loaded for one in self._engines):
            self._baseline_bytes += max(0, after - before)
        else:
            # Whatever else stays in memory: engines that have learnt nothing must not be renewed.
            self._baseline_bytes = after
        return engine

    def renew_if_outgrown(self) -> None:
        """Drop all engines that can be renewed, if they have outgrown the bound and none is busy.

        With `changed` held.
        """
        renewable = [engine for engine in self._engines if engine.is_renewable]
        self.is_outgrown = self.is_outgrown or (bool(renewable) and self._has_outgrown())
        if self.is_outgrown and not any(engine.is_busy for engine in self._engines):
            for engine in renewable:
                engine.drop()
            trim_heap()
            self.is_outgrown = False

    def _has_outgrown(self) -> bool:
        with self._held:
            bound = self._baseline_bytes + self._memory_bytes + self._held_bytes
        now = anonymous_bytes()
        # A block that was in memory when the baseline was taken is gone now.
        self._baseline_bytes = min(self._baseline_bytes, now)
        if now <= bound:
            return False
        trim_heap()  # what a long record left behind is free, but not given back
        return anonymous_bytes() > bound


class RenewableEngine:
    """An engine whose memory is bounded: renewed between batches, never inside one.

    It is loaded when the first batch comes, while other threads read and parse the next ones. Only
    an engine that is `concurrent` gets several batches at a time.
    """

    def __init__(self, load: Callable[[], Engine], memory: EngineMemory) -> None:
        self._load = load
        self._memory = memory
        self._engine: Engine | None = None
        self._n_encoding = 0
        self.n_loads = 0
        memory.add(self)

    @property
    def is_loaded(self) -> bool:
        """Whether the engine is in memory."""
        return self._engine is not None

    @property
    def is_renewable(self) -> bool:
        """Whether dropping the engine gives back what it has learnt."""
        return self._engine is not None and self._engine.renewable

    @property
    def is_busy(self) -> bool:
        """Whether a batch is being encoded."""
        return self._n_encoding > 0

    def encode(self, text: pa.LargeStringArray, laps: StageTimer) -> TokenBatch:
        """Encode documents, see `Engine`; `laps` counts waiting, loading and encoding apart."""
        engine = self._enter(laps)
        try:
            tokens = engine.encode(text)
            laps.end("encode")
            return tokens
        finally:
            del engine  # or it would live on while its successor is loaded
            self._leave()

    def drop(self) -> None:
        """Forget the engine; the next batch loads it anew."""
        self._engine = None

    def _enter(self, laps: StageTimer) -> Engine:
        memory = self._memory
        with memory.changed:
            # An outgrown engine takes no new batch: it would live on beside its successor.
            memory.changed.wait_for(lambda: not memory.is_outgrown and self._has_room())
            laps.end("wait")
            if self._engine is None:
                self._engine = memory.load(self._load)
                laps.end("load engine")
                self.n_loads += 1
            self._n_encoding += 1
            return self._engine

    def _has_room(self) -> bool:
        return not self._n_encoding or (self._engine is not None and self._engine.concurrent)

    def _leave(self) -> None:
        with self._memory.changed:
            self._n_encoding -= 1
            self._memory.renew_if_outgrown()
            self._memory.changed.notify_all()


def trim_heap() -> None:
    """Return freed memory to the system: Arrow's, and where the C library is glibc, all other.

    Without it the arenas of the pool's threads keep what an engine has freed.
    """
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def anonymous_bytes() -> int:
    """Give this process's resident memory less its file-backed pages; 0 where /proc is missing."""
    try:
        resident, shared = _STATM.read_bytes().split()[1:3]
    except OSError:
        return 0
    return (int(resident) - int(shared)) * _PAGE_BYTES
