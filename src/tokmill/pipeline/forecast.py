"""Predicts a run from a sample: tokens, disk, time, memory. Nothing is written."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tokmill.encode.engine import load_engine
from tokmill.errors import RecordError
from tokmill.memory.dataset import DatasetSize
from tokmill.memory.disk import predicted_disk
from tokmill.pipeline.bounds import (
    BASE_BYTES,
    BLOCK_COPIES,
    WRITER_BYTES,
    ahead_bytes,
    engine_bytes,
    n_writers,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.config import Config
    from tokmill.encode.engine import Engine
    from tokmill.encode.tokenizer import Tokenizer
    from tokmill.memory.bill import Bill
    from tokmill.pipeline.spec import Part, RunSpec
    from tokmill.pipeline.survey import Survey

SAMPLE_FRACTION = 0.049
"""At most 5 % of the input."""

SAMPLE_LIMIT_BYTES = 16 << 20

START_S = 1.5
"""Starting, choosing an engine and loading it, as measured with a vocabulary of 50,000."""

CACHE_BYTES_PER_TEXT_BYTE = 16
"""Engine caches per byte of text whose words are all new, at most, as measured."""

WRITERS_FROM_BYTES = 4 << 20
"""Fewer bytes of chats are written before processes for it would be started."""

FILE_S = 130e-6
"""To find, open, read, check and count one more small file, as measured with a million."""

FILE_BYTES = 800
"""What the process that plans and finishes holds for each file, as measured with a million."""

SPREAD_ERROR, HEADS_ERROR = 0.03, 1.0
"""How far a forecast of the disk is off, from a sample of all input, as measured with 9 tokenizers,
and from the heads of compressed files: a long zstd file packs 1.4 times as tightly as its head."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run is expected to make and take; `size` and `disk` are of the dataset."""

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
    size: DatasetSize
    disk: Bill

    def as_json(self) -> dict[str, Any]:
        """Give the forecast as plain values."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**plain, "size": asdict(self.size), "disk": self.disk.as_json()}


def sample_limits(parts: tuple[Part, ...]) -> tuple[int, int]:
    """Give how many bytes a forecast may read in records, and in all.

    The last record may pass the first limit; the fragments make do with what is left.
    """
    total = _input_bytes(parts)
    limit = min(int(total * SAMPLE_FRACTION), SAMPLE_LIMIT_BYTES)
    return limit // 2, limit


def forecast(spec: RunSpec, parts: tuple[Part, ...], found: Survey, workers: int) -> Forecast:
    """Predict a run from its sample.

    Raises:
        RecordError: the sample holds no document.
    """
    if not found.texts:
        raise RecordError(_no_document(found))
    engine = load_engine(
        spec.engine.name,
        spec.tokenizer,
        control_in_text=spec.config.tokenizer.control_tokens_in_text,
        n_threads=spec.n_threads,
    )
    lengths, speed = _encode(spec, engine, found)
    size = _size(spec.config, spec.tokenizer, parts, found, lengths, _density(engine, found))
    disk = expected_disk(size, parts, found)
    input_bytes, n_slices = _input_bytes(parts), sum(len(part.slices) for part in parts)
    text_bytes = round(found.text_bytes * input_bytes / found.input_bytes)
    return Forecast(
        input_bytes,
        found.read_bytes,
        found.heads_only,
        len(parts),
        size.documents,
        size.tokens,
        text_bytes,
        disk.n_bytes,
        START_S + (text_bytes / speed + n_slices * FILE_S) / workers,
        _memory(spec, text_bytes, workers) + n_slices * FILE_BYTES,
        found.n_rejects / (found.n_rejects + len(found.texts)),
        size,
        disk,
    )


def _no_document(found: Survey) -> str:
    if not found.n_rejects:
        what = f" ({found.unread[0]})" if found.unread else ""
        return f"the sample of the input holds no record{what}: nothing to predict from"
    reasons = ", ".join(f"{n:,} {reason}" for reason, n in found.rejects.most_common(3))
    return f"every sampled record was rejected ({reasons}); the first: {found.first_reject}"


def expected_size(
    config: Config, tokenizer: Tokenizer, parts: tuple[Part, ...], found: Survey, engine: Engine
) -> DatasetSize:
    """Predict the size of a dataset from its sample; the sample must hold a document."""
    lengths = _kept_lengths(config, engine, found)
    return _size(config, tokenizer, parts, found, lengths, _density(engine, found))


def expected_disk(size: DatasetSize, parts: tuple[Part, ...], found: Survey) -> Bill:
    """Say what a run that makes a dataset of this size writes."""
    slices = sum(len(part.slices) for part in parts)
    error = HEADS_ERROR if found.heads_only else SPREAD_ERROR
    return predicted_disk(size, slices=slices, error=error)


def _size(
    config: Config,
    tokenizer: Tokenizer,
    parts: tuple[Part, ...],
    found: Survey,
    lengths: npt.NDArray[np.int64],
    density: float,
) -> DatasetSize:
    sft = config.sft
    # Of chats the ends are the template's, counted with the lengths.
    n_ends = 0 if sft is not None else 1 if tokenizer.bos is None else 2
    input_bytes = _input_bytes(parts)
    kept = len(lengths) / (len(found.texts) + found.n_rejects)
    documents = round(found.records_per_byte * input_bytes * kept)
    sampled = int(lengths.sum()) + n_ends * len(lengths)
    tokens = round(sampled * input_bytes / found.input_bytes * density)
    return DatasetSize(
        kind="pretrain" if sft is None else "sft",
        tokens=tokens,
        documents=documents,
        item_bytes=np.dtype(config.output.dtype).itemsize,
        mask=sft is not None,
        weights=sft is not None and sft.weights == "file",
        shards=max(len(parts), -(-tokens // config.output.shard_tokens)),
        largest_shard_tokens=min(tokens, config.output.shard_tokens),
        vocabulary=tokenizer.vocab_size,
        length_histogram=_histogram(lengths + n_ends, documents),
        capacity=0 if sft is None else sft.packing,
        packed_rows=sft is not None and sft.packed_rows,
    )


def _histogram(lengths: npt.NDArray[np.int64], documents: int) -> tuple[int, ...]:
    """Count documents of 2^i to 2^(i+1)-1 tokens, as many as there will be."""
    if not len(lengths):
        return ()
    counts = np.bincount(np.frexp(np.maximum(lengths, 1))[1] - 1)
    return tuple(round(n * documents / len(lengths)) for n in counts.tolist())


def _input_bytes(parts: tuple[Part, ...]) -> int:
    return sum(piece.n_bytes for part in parts for piece in part.slices)


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


def _encode(spec: RunSpec, engine: Engine, found: Survey) -> tuple[npt.NDArray[np.int64], float]:
    """Give the lengths of the sample's kept documents, and bytes of text encoded per second."""
    start = time.perf_counter()
    lengths = _kept_lengths(spec.config, engine, found)
    speed = found.text_bytes / max(time.perf_counter() - start, 1e-9)
    measured = spec.engine.mb_per_s.get(spec.engine.name)
    return lengths, measured * 1e6 if measured else speed


def _kept_lengths(config: Config, engine: Engine, found: Survey) -> npt.NDArray[np.int64]:
    """Give the tokens of each of the sample's documents that the limits keep: (n,)."""
    limits = config.limits
    batch = engine.encode(pa.array(found.texts, pa.large_string()))
    lengths = batch.lengths + np.array(found.n_control or 0, np.int64)
    keep = lengths >= limits.min_tokens
    if limits.max_tokens:
        keep &= lengths <= limits.max_tokens
    return lengths[keep]


def _memory(spec: RunSpec, text_bytes: int, workers: int) -> int:
    """Return the bound on the peak: a small corpus fills neither the blocks nor the caches."""
    blocks = BLOCK_COPIES * min(ahead_bytes(spec), text_bytes)
    caches = min(engine_bytes(spec), CACHE_BYTES_PER_TEXT_BYTE * text_bytes)
    engine = caches if spec.engine.name != "tokenizers" else 0
    writers = WRITER_BYTES * n_writers(spec) if text_bytes >= WRITERS_FROM_BYTES else 0
    return workers * (BASE_BYTES + engine + blocks + writers)
