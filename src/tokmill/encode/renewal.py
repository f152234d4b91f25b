"""Holds the engine of a process, and loads it anew when its caches have grown past their bound."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from tokmill.batch import TokenBatch
    from tokmill.encode.engine import Engine
    from tokmill.laps import Laps

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class RenewableEngine:
    """An engine whose memory is bounded: renewed between batches, never inside one.

    It is loaded when the first batch comes, while other threads read and parse the next ones. Only
    an engine that is `concurrent` gets several batches at a time. The bound is on the growth of
    this process's anonymous memory since the engine was loaded, so batches in flight count too, and
    one batch of new words can pass it by the doubling of a cache. Without /proc: no renewal.
    """

    def __init__(self, load: Callable[[], Engine], memory_bytes: int) -> None:
        self._load = load
        self._memory_bytes = memory_bytes
        self._free = threading.Condition()
        self._engine: Engine | None = None
        self._n_encoding = 0
        self._is_outgrown = False
        self._baseline_bytes = sys.maxsize
        self.n_loads = 0

    def encode(self, text: pa.LargeStringArray, laps: Laps) -> TokenBatch:
        """Encode documents, see `Engine`; `laps` counts waiting, loading and encoding apart."""
        engine = self._enter(laps)
        try:
            tokens = engine.encode(text)
            laps.end("encode")
            return tokens
        finally:
            del engine  # or it would live on while its successor is loaded
            self._leave()

    def _enter(self, laps: Laps) -> Engine:
        with self._free:
            # An outgrown engine takes no new batch: it would live on beside its successor.
            self._free.wait_for(lambda: not self._is_outgrown and self._has_room())
            laps.end("wait")
            if self._engine is None:
                self._engine = self._load()
                laps.end("load engine")
                self._baseline_bytes = min(self._baseline_bytes, anonymous_bytes())
                self.n_loads += 1
            self._n_encoding += 1
            return self._engine

    def _has_room(self) -> bool:
        return not self._n_encoding or (self._engine is not None and self._engine.concurrent)

    def _leave(self) -> None:
        with self._free:
            self._n_encoding -= 1
            if self._engine is not None and self._engine.renewable and self._has_outgrown():
                self._is_outgrown = True
            if self._is_outgrown and not self._n_encoding:
                self._engine = None
                trim_heap()
                self._is_outgrown = False
            self._free.notify_all()

    def _has_outgrown(self) -> bool:
        return anonymous_bytes() - self._baseline_bytes > self._memory_bytes


def trim_heap() -> None:
    """Give freed memory back to the system, where the C library is glibc.

    Without it the arenas of the pool's threads keep what an engine has freed.
    """
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
