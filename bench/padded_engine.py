"""An engine that makes every call of another one as long as a slow one: it sleeps for the rest.

Outside the GIL, as an engine's own work is. So two cores show whether a run keeps the calls of 64
in flight. `bench.many_cores` lays it out as an engine of another package. It is told by variables:
`PADDED_ENGINE` (a built-in engine), `PADDED_NS` (of a byte of text), `PADDED_CALLS` (a directory).
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tokmill.engines.engine import EngineRow, engine_row
from tokmill.offsets import byte_offsets

if TYPE_CHECKING:
    import pyarrow as pa

    from tokmill.tokenizer.tokenizer import Tokenizer
    from tokmill.values import TokenBatch

CALL = np.dtype(
    [(name, "<f8") for name in ("process", "start_s", "stop_s", "cpu_s", "process_s", "n_bytes")]
)
"""A call: when it began and ended, by a clock that all processes share, and its bytes of text.

`process`: its id. `cpu_s`: processor time of the call. `process_s`: that of its process so far.
"""


class Padded:
    """Encodes as `PADDED_ENGINE`, and returns after `PADDED_NS` for each byte of text."""

    name = "padded"
    concurrent = True

    def __init__(self, tokenizer: Tokenizer, *, parse: bool, n_threads: int) -> None:
        row, _ = engine_row(os.environ["PADDED_ENGINE"])
        self.inner = row.load(tokenizer, parse=parse, n_threads=n_threads)
        self.renewable = self.inner.renewable
        self._byte_s = float(os.environ["PADDED_NS"]) / 1e9
        self._calls = Path(os.environ["PADDED_CALLS"]) / str(os.getpid())
        self._lock = threading.Lock()

    def encode(self, text: pa.LargeStringArray) -> TokenBatch:
        """Encode documents; see `Engine`."""
        start_s, start_cpu_s = time.monotonic(), time.thread_time()
        tokens = self.inner.encode(text)
        cpu_s = time.thread_time() - start_cpu_s
        offsets = byte_offsets(text)
        n_bytes = int(offsets[-1] - offsets[0])
        time.sleep(max(0.0, start_s + self._byte_s * n_bytes - time.monotonic()))
        stop_s, process_s = time.monotonic(), time.process_time()
        call = np.array([(os.getpid(), start_s, stop_s, cpu_s, process_s, n_bytes)], CALL)
        with self._lock, self._calls.open("ab") as file:
            file.write(call.tobytes())
        return tokens


def read_calls(directory: Path) -> np.ndarray:
    """Return the calls of all processes, (n,) of `CALL`, in the order in which they began."""
    found = [np.fromfile(path, CALL) for path in sorted(directory.iterdir())]
    calls = np.concatenate([*found, np.zeros(0, CALL)])
    return calls[np.argsort(calls["start_s"], kind="stable")]


ENGINE = EngineRow(Padded, packages=("gigatoken",))
