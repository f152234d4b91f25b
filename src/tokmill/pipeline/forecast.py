"""Predicts a run from a sample: tokens, disk, time, memory. Nothing is written."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tokmill.encode.engine import load_engine
from tokmill.errors import UsageError
from tokmill.pipeline.part import READ_AHEAD_BATCHES
from tokmill.pipeline.road import ENGINE_THREAD_BYTES
from tokmill.shards.index import HEADER

if TYPE_CHECKING:
    from tokmill.encode.engine import Engine
    from tokmill.pipeline.spec import Part, RunSpec
    from tokmill.pipeline.survey import Survey

SAMPLE_FRACTION = 0.049
"""At most 5 % of the input."""

SAMPLE_LIMIT_BYTES = 16 << 20

START_S = 1.5
"""Starting, choosing an engine and loading it, as measured with a vocabulary of 50,000."""

BASE_MEMORY_BYTES = 230 << 20
"""A worker before its first batch: interpreter, Arrow, tokenizer, two engines loaded."""

BATCH_COPIES = 6
"""A batch in flight stands as bytes, columns, text, ids and tokens."""

CACHE_BYTES_PER_TEXT_BYTE = 16
"""Engine caches per byte of text whose words are all new, at most, as measured."""

FILE_S = 130e-6
"""To find, open, read, check and count one more small file, as measured with a million."""

FILE_BYTES = 800
"""What the process that plans and finishes holds for each file, as measured with a million."""

_INDEX_BYTES = 20
_RECORD_BYTES = 2000
_FILE_ROWS_BYTES = 350  # of a file in the plan, the manifest and the record, by a path of 40


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run is expected to make and take."""

    input_bytes: int
    sampled_bytes: int
    heads_only: bool
    parts: int
    documents: int
    tokens: int
    text_bytes: int
    disk_bytes: int
    time_s: float
    memory_bytes: int
    reject_fraction: float

    def as_json(self) -> dict[str, Any]:
        """Give the forecast as plain values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def sample_limits(parts: tuple[Part, ...]) -> tuple[int, int]:
    """Give how many bytes a forecast may read in records, and in all.

    The last record may pass the first limit; the fragments make do with what is left.
    """
    total = sum(s.n_bytes for part in parts for s in part.slices)
    limit = min(int(total * SAMPLE_FRACTION), SAMPLE_LIMIT_BYTES)
    return limit // 2, limit


def forecast(spec: RunSpec, parts: tuple[Part, ...], found: Survey, workers: int) -> Forecast:
    """Predict a run from its sample.

    Raises:
        UsageError: the sample holds no document.
    """
    if not found.texts:
        raise UsageError("the sampled records hold no document: nothing to predict from")
    engine = load_engine(
        spec.engine.name,
        spec.tokenizer,
        control_in_text=spec.config.tokenizer.control_tokens_in_text,
        n_threads=spec.n_threads,
    )
    lengths, speed = _encode(spec, engine, found)
    n_ends = 1 if spec.tokenizer.bos is None else 2
    if spec.config.sft is not None:
        n_ends = 0  # the template's, counted with the lengths
    input_bytes = sum(s.n_bytes for part in parts for s in part.slices)
    n_slices = sum(len(part.slices) for part in parts)
    scale = input_bytes / found.input_bytes
    kept = len(lengths) / (len(found.texts) + found.n_rejects)
    documents = round(found.records_per_byte * input_bytes * kept)
    sampled_tokens = int(lengths.sum()) + n_ends * len(lengths)
    tokens = round(sampled_tokens * scale * _density(engine, found))
    item_bytes = np.dtype(spec.config.output.dtype).itemsize
    shards = max(len(parts), -(-tokens // spec.config.output.shard_tokens))
    disk = tokens * (item_bytes + _sidecar_bytes(spec)) + documents * _INDEX_BYTES
    disk += shards * (HEADER.size + 8 + _RECORD_BYTES) + n_slices * _FILE_ROWS_BYTES
    text_bytes = round(found.text_bytes * scale)
    return Forecast(
        input_bytes,
        found.read_bytes,
        found.heads_only,
        len(parts),
        documents,
        tokens,
        text_bytes,
        disk,
        START_S + (text_bytes / speed + n_slices * FILE_S) / workers,
        _memory(spec, text_bytes, workers) + n_slices * FILE_BYTES,
        found.n_rejects / (found.n_rejects + len(found.texts)),
    )


def _sidecar_bytes(spec: RunSpec) -> int:
    """Give the bytes that stand beside each token: of the mask, and of weights."""
    settings = spec.config.sft
    if settings is None:
        return 0
    return 1 + 4 * (settings.weights == "file")


def _density(engine: Engine, found: Survey) -> float:
    """Give how many tokens a byte holds all over the input, against the sampled records.

    Both are raw input in pieces of one size, so that JSON and cut words weigh alike.
    """
    if not found.fragments:
        return 1.0
    return _tokens_per_byte(engine, found.fragments) / _tokens_per_byte(engine, found.raw)


def _tokens_per_byte(engine: Engine, texts: list[str]) -> float:
    text = pa.array(texts, pa.large_string())
    return len(engine.encode(text).ids) / sum(len(piece.encode()) for piece in texts)


def _encode(
    spec: RunSpec, engine: Engine, found: Survey
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], float]:
    """Give the lengths of the sample's kept documents, and bytes of text encoded per second."""
    limits = spec.config.limits
    text = pa.array(found.texts, pa.large_string())
    start = time.perf_counter()
    batch = engine.encode(text)
    speed = text.nbytes / max(time.perf_counter() - start, 1e-9)
    measured = spec.engine.mb_per_s.get(spec.engine.name)
    lengths = batch.lengths + np.array(found.n_control or 0, np.int64)
    keep = lengths >= limits.min_tokens
    if limits.max_tokens:
        keep &= lengths <= limits.max_tokens
    return lengths[keep], measured * 1e6 if measured else speed


def _memory(spec: RunSpec, text_bytes: int, workers: int) -> int:
    """Give the bound on the peak: a small corpus fills neither the batches nor the caches."""
    run = spec.config.run
    batches = BATCH_COPIES * min(READ_AHEAD_BATCHES * run.batch_bytes, text_bytes)
    most = run.engine_memory_bytes or spec.n_threads * ENGINE_THREAD_BYTES
    caches = min(most, CACHE_BYTES_PER_TEXT_BYTE * text_bytes)
    engine = caches if spec.engine.name != "tokenizers" else 0
    return workers * (BASE_MEMORY_BYTES + engine + batches)
