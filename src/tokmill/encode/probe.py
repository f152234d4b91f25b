"""The child process of `choose`: one engine, compared with the reference's ids and timed."""

from __future__ import annotations

import json
import pickle
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tokmill.encode.engine import load_engine
from tokmill.encode.offsets import pieces
from tokmill.encode.spot import describe_difference
from tokmill.errors import TokmillError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.encode.choose import ProbeTask
    from tokmill.encode.engine import Engine

_PIECES_PER_CALLER = 4
"""So that one long piece does not keep the others waiting for long."""


def run(task: ProbeTask) -> dict[str, Any]:
    """Compare and time one engine; see `choose.probe` for the answer."""
    try:
        engine = load_engine(
            task.engine,
            task.tokenizer,
            control_in_text=task.control_in_text,
            n_threads=task.n_threads,
        )
    except TokmillError as error:
        return {"refused": str(error)}
    batch = engine.encode(pa.array(task.parity_texts, pa.large_string()))
    for i, expected in enumerate(task.parity_ids):
        ids = batch.ids[batch.offsets[i] : batch.offsets[i + 1]]
        if not np.array_equal(ids, expected):
            text = task.parity_texts[i]
            return {"refused": describe_difference(text, ids, expected, task.engine)}
    if not task.timing_texts:
        return {"mb_per_s": 0.0}
    middle = len(task.timing_texts) // 2
    _seconds(engine, task.timing_texts[:middle], task.n_threads)  # fills the caches
    rest = task.timing_texts[middle:]
    n_bytes = sum(len(text.encode()) for text in rest)
    return {"mb_per_s": round(n_bytes / _seconds(engine, rest, task.n_threads) / 1e6, 1)}


def _seconds(engine: Engine, texts: Sequence[str], n_threads: int) -> float:
    """Time an engine as the road feeds it: on all its threads, or on threads of its own."""
    text = pa.array(texts, pa.large_string())
    n_callers = n_threads if engine.concurrent else 1
    batches = list(pieces(text, max(1, text.nbytes // (_PIECES_PER_CALLER * n_callers))))
    with ThreadPoolExecutor(n_callers) as pool:
        start = time.perf_counter()
        list(pool.map(engine.encode, batches))
        return time.perf_counter() - start


if __name__ == "__main__":
    answer = run(pickle.loads(Path(sys.argv[1]).read_bytes()))  # noqa: S301 our own file
    sys.stdout.write(json.dumps(answer) + "\n")
