"""Predicts a run from a sample: tokens, disk, time, memory. Nothing is written."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tokmill.engines.engine import load_engine
from tokmill.errors import RecordError
from tokmill.memory.disk import predicted_disk
from tokmill.recipes.memory_bounds import (
    BASE_BYTES,
    BLOCK_COPIES,
    WRITER_BYTES,
    ahead_bytes,
    engine_bytes,
    n_writers,
)
from tokmill.recipes.table import make_recipe
from tokmill.run.forecast.dataset_size import input_bytes_of, size_of
from tokmill.run.forecast.encoded_sample import encode_sample
from tokmill.run.forecast.estimate import Fragments, counted, estimated
from tokmill.run.packing import pack
from tokmill.words.plural import plural

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.engines.engine import Engine
    from tokmill.memory.bill import Bill
    from tokmill.memory.dataset import DatasetSize
    from tokmill.recipes.spec import Part, RunSpec
    from tokmill.run.forecast.encoded_sample import EncodedSample
    from tokmill.run.forecast.sample import InputSample
    from tokmill.settings.schema import Config

    Floats = npt.NDArray[np.float64]

SAMPLE_FRACTION = 0.049
"""At most 5 % of a large input."""

SAMPLE_LIMIT_BYTES = 16 << 20

WHOLE_BYTES = 4 << 20
"""Input of no more bytes is read whole: a twentieth of it would say little."""

LEAST_BYTES = 2 << 20
"""As much of a larger one is sampled at least, in some hundred windows and fragments."""

PACKED_DOCUMENTS = 1 << 15
"""As many samples are packed to see how full rows get."""

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


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run is expected to make and take; `size` and `disk` are of the dataset.

    `is_counted`: all of the input was read, so that tokens, documents and drops are those of the
    run; else they lie within the bands, `tokens_low` to `tokens_high`, in 9 of 10 cases.
    """

    input_bytes: int
    sampled_bytes: int
    heads_only: bool
    is_counted: bool
    parts: int
    documents: int
    documents_low: int
    documents_high: int
    tokens: int
    tokens_low: int
    tokens_high: int
    text_bytes: int
    disk_bytes: int
    time_s: float
    memory_bytes: int
    reject_fraction: float
    drop_fraction: float
    size: DatasetSize
    disk: Bill

    def as_json(self) -> dict[str, Any]:
        """Give the forecast as plain values."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**plain, "size": asdict(self.size), "disk": self.disk.as_json()}


def sample_limits(parts: tuple[Part, ...]) -> tuple[int, int]:
    """Give how many bytes a forecast may read in records, and in all.

    Both are all of a small input. The last record may pass the first limit; the fragments make do
    with what is left.
    """
    total = input_bytes_of(parts)
    if total <= WHOLE_BYTES:
        return total, total
    limit = min(max(int(total * SAMPLE_FRACTION), LEAST_BYTES), SAMPLE_LIMIT_BYTES)
    return limit // 2, limit


def forecast(spec: RunSpec, parts: tuple[Part, ...], found: InputSample, workers: int) -> Forecast:
    """Predict a run from its sample, whose blocks were kept.

    Raises:
        RecordError: the sample holds no document, or the run would make none.
    """
    if not found.texts:
        raise RecordError(_no_document(found))
    sampled, speed = _encoded(spec, found)
    if found.is_whole and not len(sampled.lengths):
        raise RecordError(_nothing_kept(sampled))
    bytes_per = _bytes_per(spec.config)
    input_bytes, n_slices = input_bytes_of(parts), sum(len(part.slices) for part in parts)
    if found.is_whole:
        estimates = counted(sampled, bytes_per)
    else:
        fragments = _fragments(spec, found)
        estimates = estimated(input_bytes, found, sampled, fragments, bytes_per)
    tokens, documents = estimates.tokens, estimates.documents
    size = size_of(
        spec.config, spec.tokenizer, parts, tokens.value, documents.value, sampled.lengths
    )
    splits = max(1, len(np.unique(sampled.is_val)))
    disk = predicted_disk(
        size,
        slices=n_slices,
        rows=_rows(sampled, size),
        splits=splits,
        error=estimates.data_bytes.error,
    )
    text_bytes = round(int(sampled.text_bytes.sum()) * input_bytes / found.input_bytes)
    n_records = int(sampled.records.sum())
    return Forecast(
        input_bytes,
        found.read_bytes,
        found.heads_only,
        found.is_whole,
        len(parts),
        documents.value,
        documents.low,
        documents.high,
        tokens.value,
        tokens.low,
        tokens.high,
        text_bytes,
        disk.n_bytes,
        START_S + (text_bytes / speed + n_slices * FILE_S) / workers,
        _memory(spec, text_bytes, workers) + n_slices * FILE_BYTES,
        sampled.rejects.total() / max(1, n_records),
        sampled.drops.total() / max(1, n_records),
        size,
        disk,
    )


def _encoded(spec: RunSpec, found: InputSample) -> tuple[EncodedSample, float]:
    """Return what the run makes of the sample, and bytes of text encoded per second."""
    recipe = make_recipe(spec)
    start = time.perf_counter()
    sampled = encode_sample(recipe, found.blocks, len(found.window_read))
    taken_s = time.perf_counter() - start
    measured = spec.engine.mb_per_s.get(spec.engine.name)
    speed = max(1, int(sampled.text_bytes.sum())) / max(taken_s, 1e-9)
    return sampled, measured * 1e6 if measured else speed


def _nothing_kept(sampled: EncodedSample) -> str:
    found = [*sampled.rejects.most_common(), *sampled.drops.most_common()]
    reasons = ", ".join(f"{n:,} {reason}" for reason, n in found)
    records = plural(int(sampled.records.sum()), "record")
    return f"the run would make no document of {records} ({reasons})"


def _bytes_per(config: Config) -> tuple[float, float]:
    """Return the bytes on disk of a token and of a document, which the band of their sum needs."""
    sft = config.sft
    beside = 0 if sft is None else 1 + 4 * (sft.weights == "file")
    of_token = np.dtype(config.output.dtype).itemsize + beside
    rows = 2 if sft is not None and sft.packed_rows else 1
    return float(of_token * rows), 20.0


def _rows(sampled: EncodedSample, size: DatasetSize) -> int:
    """Return the rows of packing, as full as samples like those of the sample make them."""
    if not size.capacity or not len(sampled.lengths):
        return 0
    n_rows = n_tokens = 0
    for split in (False, True):
        lengths = sampled.lengths[sampled.is_val == split]
        if len(lengths):
            share = round(size.documents * len(lengths) / len(sampled.lengths))
            lengths = np.resize(lengths, max(len(lengths), min(PACKED_DOCUMENTS, share)))
            n_rows += pack(lengths, size.capacity).n_rows
            n_tokens += int(lengths.sum())
    return max(1, round(n_rows * size.tokens / n_tokens))


def _fragments(spec: RunSpec, found: InputSample) -> Fragments:
    """Return the tokens of raw input: of fragments from all over it, and of the windows."""
    raw = np.zeros((2, len(found.window_read)))
    if not found.fragments:
        return Fragments(*np.zeros((3, 0)), *raw)
    engine = load_engine(
        spec.engine.name,
        spec.tokenizer,
        control_in_text=spec.config.tokenizer.control_tokens_in_text,
        n_threads=spec.n_threads,
    )
    for row, amounts in zip(raw, _amounts(engine, found.raw), strict=True):
        np.add.at(row, found.raw_windows, amounts)
    line_ends = np.array([text.count("\n") for text in found.fragments], float)
    return Fragments(*_amounts(engine, found.fragments), line_ends, *raw)


def _amounts(engine: Engine, texts: list[str]) -> tuple[Floats, Floats]:
    """Return the tokens and the bytes of each of some texts."""
    lengths = engine.encode(pa.array(texts, pa.large_string())).lengths
    return lengths.astype(float), np.array([len(text.encode()) for text in texts], float)


def _no_document(found: InputSample) -> str:
    if not found.n_rejects:
        what = f" ({found.unread[0]})" if found.unread else ""
        return f"the sample of the input holds no record{what}: nothing to predict from"
    reasons = ", ".join(f"{n:,} {reason}" for reason, n in found.rejects.most_common(3))
    return f"every sampled record was rejected ({reasons}); the first: {found.first_reject}"


def _memory(spec: RunSpec, text_bytes: int, workers: int) -> int:
    """Return the bound on the peak: a small corpus fills neither the blocks nor the caches."""
    blocks = BLOCK_COPIES * min(ahead_bytes(spec), text_bytes)
    caches = min(engine_bytes(spec), CACHE_BYTES_PER_TEXT_BYTE * text_bytes)
    engine = caches if spec.engine.name != "tokenizers" else 0
    writers = WRITER_BYTES * n_writers(spec) if text_bytes >= WRITERS_FROM_BYTES else 0
    return workers * (BASE_BYTES + engine + blocks + writers)
