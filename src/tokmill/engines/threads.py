"""The number of threads that native engines start, which they read from a variable."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE = "RAYON_NUM_THREADS"


class _State:
    lock = threading.Lock()
    n_open = 0
    is_ours = False


@contextmanager
def engine_threads(n_threads: int) -> Iterator[None]:
    """Set the variable while the context is open, unless whoever started this process has set it.

    Engines read it when they encode for the first time in a process, and never again. Of contexts
    that are open at the same time on several threads, the first decides.
    """
    with _State.lock:
        if not _State.n_open and VARIABLE not in os.environ:
            os.environ[VARIABLE] = str(n_threads)
            _State.is_ours = True
        _State.n_open += 1
    try:
        yield
    finally:
        with _State.lock:
            _State.n_open -= 1
            if not _State.n_open and _State.is_ours:
                os.environ.pop(VARIABLE, None)
                _State.is_ours = False
