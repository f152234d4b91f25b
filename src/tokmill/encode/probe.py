"""The child process of `choose`: one engine, compared with the reference's ids and timed."""

from __future__ import annotations

import json
import pickle
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tokmill.encode.engine import load_engine
from tokmill.encode.spot import describe_difference
from tokmill.errors import TokmillError

if TYPE_CHECKING:
    from tokmill.encode.choose import ProbeTask


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
    engine.encode(pa.array(task.timing_texts[:middle], pa.large_string()))  # fills the caches
    rest = pa.array(task.timing_texts[middle:], pa.large_string())
    start = time.perf_counter()
    engine.encode(rest)
    seconds = time.perf_counter() - start
    return {"mb_per_s": round(rest.nbytes / seconds / 1e6, 1)}


if __name__ == "__main__":
    answer = run(pickle.loads(Path(sys.argv[1]).read_bytes()))  # noqa: S301 our own file
    sys.stdout.write(json.dumps(answer) + "\n")
