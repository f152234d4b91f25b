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

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class RenewableEngine:
    """An engine whose memory is bounded: renewed between batches, never inside one.

    It is loaded when the first batch comes, while other threads read and parse the next ones.
    One batch is encoded at a time, by an engine that has all threads for itself: two at a time
    would keep an outgrown engine alive beside its successor. The bound is on the growth of this
    process's anonymous memory since the engine was loaded, so batches in flight count too, and one
    batch of new words can pass it by the doubling of a cache. Without /proc it is never renewed.
    """

    def __init__(self, load: Callable[[], Engine], memory_bytes: int) -> None:
        self._load = load
        self._memory_bytes = memory_bytes
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._baseline_bytes = sys.maxsize
        self.n_loads = 0

    def encode(self, text: pa.LargeStringArray) -> TokenBatch:
        """Encode documents; see `Engine`."""
        with self._lock:
            if self._engine is None:
                self._engine = self._load()
                self._baseline_bytes = min(self._baseline_bytes, anonymous_bytes())
                self.n_loads += 1
            tokens = self._engine.encode(text)
            if self._engine.renewable and self._has_outgrown():
                self._engine = None
                trim_heap()
            return tokens

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
