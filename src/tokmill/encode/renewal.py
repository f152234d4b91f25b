"""Holds the engine of a process, and loads it anew when its caches have grown past their bound."""

from __future__ import annotations

import os
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

    The bound is on the growth of this process's anonymous memory since the engine was loaded, so
    batches in flight count too. Without /proc the engine is never renewed.
    """

    def __init__(self, load: Callable[[], Engine], memory_bytes: int) -> None:
        self._load = load
        self._memory_bytes = memory_bytes
        self._lock = threading.Lock()
        self._engine: Engine | None = load()
        self._baseline_bytes = anonymous_bytes()
        self.n_renewals = 0

    def encode(self, text: pa.LargeStringArray) -> TokenBatch:
        """Encode documents; see `Engine`."""
        engine = self._current()
        tokens = engine.encode(text)
        if engine.renewable and anonymous_bytes() - self._baseline_bytes > self._memory_bytes:
            self._drop(engine)
        return tokens

    def _current(self) -> Engine:
        with self._lock:
            if self._engine is None:
                self._engine = self._load()
                self.n_renewals += 1
            return self._engine

    def _drop(self, engine: Engine) -> None:
        """Forget an engine; its memory goes when the last thread that encodes with it is done."""
        with self._lock:
            if self._engine is engine:
                self._engine = None


def anonymous_bytes() -> int:
    """Give this process's resident memory less its file-backed pages; 0 where /proc is missing."""
    try:
        resident, shared = _STATM.read_bytes().split()[1:3]
    except OSError:
        return 0
    return (int(resident) - int(shared)) * _PAGE_BYTES
