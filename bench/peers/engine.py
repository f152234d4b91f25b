"""A fast engine alone, over ready text in memory: the ceiling of every recipe that uses it.

Settings: `engine`; `mode`: `serial` (one thread), `parallel` (the engine's own threads) or
`threads` (calls on one thread a core); `batch_bytes`: text a call, 0 for all in one call.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.corpus import n_text_bytes, read_text
from bench.libraries import described
from bench.values import NotMeasured, Task, Timing

if TYPE_CHECKING:
    import pyarrow as pa

SMALL_CALL_BYTES = 1 << 20
"""A parallel call of up to this much gigatoken encodes on the thread that calls, with the words
that one of its workers has learnt: on several threads that is often its best."""

Encode = Callable[[Any], int]


def run(task: Task) -> Timing:
    """Time the calls over text that stands in memory in the form that the engine takes best."""
    mode, cores = task.settings["mode"], task.cores
    batch_bytes = task.settings["batch_bytes"]
    small = mode == "threads" and batch_bytes <= SMALL_CALL_BYTES
    parallel = mode == "parallel" or small
    os.environ["RAYON_NUM_THREADS"] = str(cores if parallel else 1)
    if mode == "threads":  # fastokens has one thread for each core besides, unless told otherwise
        os.environ["FASTOKENS_BPE_THREADS"] = "1"
    text = read_text(Path(task.text))
    feed, encode, start_s = _load(task, parallel=parallel)
    calls = [feed(text.slice(a, b - a)) for a, b in _cuts(text, batch_bytes)]
    n_tokens, seconds = _timed(encode, calls, cores if mode == "threads" else 1)
    return Timing(seconds, seconds, n_text_bytes(text), n_tokens + len(text), len(text), start_s)


def _timed(encode: Encode, calls: list[Any], n_threads: int) -> tuple[int, float]:
    if n_threads == 1:
        start = time.perf_counter()
        return sum(map(encode, calls)), time.perf_counter() - start
    with ThreadPoolExecutor(n_threads) as pool:
        start = time.perf_counter()
        return sum(pool.map(encode, calls)), time.perf_counter() - start


def _cuts(text: pa.LargeStringArray, batch_bytes: int) -> list[tuple[int, int]]:
    if not batch_bytes:
        return [(0, len(text))]
    offsets = np.frombuffer(text.buffers()[1], np.int64)[text.offset :][: len(text) + 1]
    cuts = [0]
    while cuts[-1] < len(text):
        limit = offsets[cuts[-1]] + batch_bytes
        cuts.append(max(cuts[-1] + 1, int(np.searchsorted(offsets, limit, "right")) - 1))
    return list(itertools.pairwise(cuts))


def _load(
    task: Task, *, parallel: bool
) -> tuple[Callable[[pa.LargeStringArray], Any], Encode, float]:
    """Load an engine: what makes its input of a column, what encodes that and counts, seconds."""
    tokenizer = described(task.tokenizer, task.eos)
    if not tokenizer.json:
        raise NotMeasured("no tokenizer.json says the same as this SentencePiece model")
    load = {"gigatoken": _gigatoken, "fastokens": _fastokens}[task.settings["engine"]]
    source, start = tokenizer.fast_json, time.perf_counter()
    try:
        feed, encode = load(source, parallel=parallel)
    except ImportError:
        raise NotMeasured("not installed") from None
    except (ValueError, RuntimeError, KeyError, TypeError, NotImplementedError) as error:
        raise NotMeasured(f"refuses the tokenizer: {str(error).splitlines()[0][:120]}") from None
    return feed, encode, time.perf_counter() - start


def _gigatoken(
    tokenizer_json: str, *, parallel: bool
) -> tuple[Callable[[pa.LargeStringArray], Any], Encode]:
    import awkward as ak
    from gigatoken.gigatoken_rs import load_hf_json

    from tokmill.tokenizer.tokenizer_json import without_special_tokens

    backend = load_hf_json(without_special_tokens(tokenizer_json))

    def feed(text: pa.LargeStringArray) -> Any:
        offsets = np.frombuffer(text.buffers()[1], np.int64)[text.offset :][: len(text) + 1]
        characters = ak.contents.NumpyArray(
            np.frombuffer(text.buffers()[2], np.uint8), parameters={"__array__": "char"}
        )
        return ak.Array(
            ak.contents.ListOffsetArray(
                ak.index.Index64(offsets), characters, parameters={"__array__": "string"}
            )
        )

    def encode(strings: Any) -> int:
        return len(backend.encode_batch(strings, parallel=parallel).layout.content.data)

    return feed, encode


def _fastokens(
    tokenizer_json: str, *, parallel: bool
) -> tuple[Callable[[pa.LargeStringArray], Any], Encode]:
    from fastokens import Tokenizer as Library

    library = Library.from_json_str(tokenizer_json)  # variables set its threads

    def encode(texts: list[str]) -> int:
        ids, _ = library.encode_batch_flat(texts, split_special_tokens=True)
        return len(ids) // 4

    return lambda text: text.to_pylist(), encode
