"""The engines that a process has loaded: kept for its run, and renewed when caches grow too large.

A vocabulary of 150,000 takes 0.4 s to load (one core of an AMD Zen 5), for each engine.
"""

from __future__ import annotations

import ctypes
import os
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from tokmill.engines.engine import load_engine
from tokmill.offsets import byte_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from tokmill.engines.engine import Engine
    from tokmill.timing import StageTimer
    from tokmill.tokenizer.tokenizer import Tokenizer
    from tokmill.values import TokenBatch

    _Key = tuple[str, str, str, str, int]

REST_BYTES = 16 << 20
"""Text that an engine encodes before it is renewed, however small the limit: loading takes as long
as encoding 10 to 50 MB. Of ever-new words this much fills 110 MB of caches."""

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class EngineStore:
    """Engines by name, tokenizer and settings; safe to call from several threads.

    A copy in another process is empty.
    """

    def __init__(self) -> None:
        self._loading: dict[_Key, threading.Lock] = {}
        self._engines: dict[_Key, Engine] = {}

    def __reduce__(self) -> tuple[type[EngineStore], tuple[()]]:
        """Return how to make an empty store."""
        return EngineStore, ()

    def load(
        self,
        name: str,
        tokenizer: Tokenizer,
        *,
        control_in_text: str,
        n_threads: int = 1,
        is_taken: bool = False,
    ) -> Engine:
        """Return the engine for these arguments, loaded once; other threads wait for it.

        `is_taken`: the caller decides how long it stays in memory. If it is renewable, the next
        caller gets a new one, with empty caches.

        Raises:
            TokenizerError: see `load_engine`; the next call tries again.
        """
        # The identity is that of the file: a variant of a tokenizer has another `json`.
        key = name, tokenizer.identity, tokenizer.json, control_in_text, n_threads
        with self._loading.setdefault(key, threading.Lock()):
            engine = self._engines.pop(key, None) or load_engine(
                name, tokenizer, control_in_text=control_in_text, n_threads=n_threads
            )
            if not (is_taken and engine.renewable):
                self._engines[key] = engine
            return engine

    def keep(self, names: Collection[str]) -> None:
        """Forget engines with other names, to free their memory; one may be loaded meanwhile."""
        kept = self._engines.copy().items()
        self._engines = {key: engine for key, engine in kept if key[0] in names}


class EngineMemory:
    """The memory that the caches of a process's engines may take together.

    Compares anonymous RSS with its value right after loading. Blocks in work are subtracted, see
    `holding`; one block may overshoot when a cache doubles. Without /proc there is no limit.

    Engines are renewed only after `rest_bytes` of text. If the process is above the limit even
    without them, the memory is not theirs: then the next rest is twice as long.
    """

    def __init__(self, memory_bytes: int, *, rest_bytes: int = REST_BYTES) -> None:
        self.changed = threading.Condition()
        self.is_outgrown = False
        self._memory_bytes = memory_bytes
        self._shortest_rest = self._rest_bytes = rest_bytes
        self._encoded_bytes = 0  # since the last renewal
        self._engines: list[RenewableEngine] = []
        self._baseline_bytes = 0
        self._held = threading.Lock()  # separate: a new block does not wait for a load
        self._held_bytes = 0

    def add(self, engine: RenewableEngine) -> None:
        """Add an engine to those that share the limit."""
        self._engines.append(engine)

    @contextmanager
    def holding(self, n_bytes: int) -> Iterator[None]:
        """Subtract `n_bytes` while the context is open: a block in work, with all its copies.

        Otherwise one long record would look like a cache that has grown.
        """
        with self._held:
            self._held_bytes += n_bytes
        try:
            yield
        finally:
            with self._held:
                self._held_bytes -= n_bytes

    def load(self, load: Callable[[], Engine]) -> Engine:
        """Load an engine and set the baseline; the caller holds `changed`."""
        has_others = any(held.engine is not None for held in self._engines)
        if has_others:
            trim_heap()
        before = anonymous_bytes()
        engine = load()
        trim_heap()
        after = anonymous_bytes()
        if has_others:
            self._baseline_bytes += max(0, after - before)
        else:
            # Includes everything else in memory: an engine with empty caches must not be renewed.
            self._baseline_bytes = after
        return engine

    def renew_if_outgrown(self, encoded_bytes: int) -> None:
        """Drop all renewable engines if they exceed the limit and none is busy.

        `encoded_bytes`: of the text just encoded. The caller holds `changed`.
        """
        self._encoded_bytes += encoded_bytes
        renewable = [held for held in self._engines if held.engine and held.engine.renewable]
        self.is_outgrown = self.is_outgrown or (bool(renewable) and self._has_outgrown())
        if self.is_outgrown and not any(held.n_encoding for held in self._engines):
            for held in renewable:
                held.engine = None  # the next batch loads it again
            trim_heap()
            self.is_outgrown = False
            self._encoded_bytes = 0
            has_helped = anonymous_bytes() <= self._limit_bytes()
            self._rest_bytes = self._shortest_rest if has_helped else 2 * self._rest_bytes

    def _limit_bytes(self) -> int:
        with self._held:
            return self._baseline_bytes + self._memory_bytes + self._held_bytes

    def _has_outgrown(self) -> bool:
        limit, now = self._limit_bytes(), anonymous_bytes()
        # A block that was in memory at the time of the baseline may be gone now.
        self._baseline_bytes = min(self._baseline_bytes, now)
        if now <= limit or self._encoded_bytes < self._rest_bytes:
            return False
        trim_heap()  # memory of a long record can be free without being returned
        return anonymous_bytes() > limit


class RenewableEngine:
    """An engine that is reloaded between batches, never inside one, to free its caches.

    It is loaded with the first batch, while other threads read and parse the next ones. Only a
    `concurrent` engine gets several batches at a time. `engine`: None if it is not in memory.
    `n_encoding`: batches in work. `n_loads`: so far.
    """

    def __init__(self, load: Callable[[], Engine], memory: EngineMemory) -> None:
        self._load = load
        self._memory = memory
        self.engine: Engine | None = None
        self.n_encoding = 0
        self.n_loads = 0
        memory.add(self)

    def encode(self, text: pa.LargeStringArray, timer: StageTimer) -> TokenBatch:
        """Encode documents, see `Engine`; `timer` counts waiting, loading and encoding."""
        engine = self._enter(timer)
        try:
            tokens = engine.encode(text)
            timer.end("encode")
            return tokens
        finally:
            del engine  # otherwise it stays in memory while its successor is loaded
            offsets = byte_offsets(text)
            self._leave(int(offsets[-1] - offsets[0]))

    def _enter(self, timer: StageTimer) -> Engine:
        """Wait for room, and return the engine, loaded if need be, until `_leave`."""
        memory = self._memory
        with memory.changed:
            # An engine above the limit gets no new batch, or it would never be idle.
            memory.changed.wait_for(lambda: not memory.is_outgrown and self._has_room())
            timer.end("wait")
            if self.engine is None:
                self.engine = memory.load(self._load)
                timer.end("load engine")
                self.n_loads += 1
            self.n_encoding += 1
            return self.engine

    def _has_room(self) -> bool:
        return not self.n_encoding or (self.engine is not None and self.engine.concurrent)

    def _leave(self, encoded_bytes: int) -> None:
        with self._memory.changed:
            self.n_encoding -= 1
            self._memory.renew_if_outgrown(encoded_bytes)
            self._memory.changed.notify_all()


def trim_heap() -> None:
    """Return freed memory to the system: Arrow's, and with glibc all other.

    Otherwise the arenas of the pool's threads keep the memory that an engine has freed.
    """
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def anonymous_bytes() -> int:
    """Return the resident memory of this process without file-backed pages; 0 without /proc."""
    try:
        resident, shared = _STATM.read_bytes().split()[1:3]
    except OSError:
        return 0
    return (int(resident) - int(shared)) * _PAGE_BYTES
