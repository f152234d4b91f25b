"""Predict a run from a sample: tokens, disk, time, memory. Writes nothing."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from heapq import nlargest
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tokmill.bill.disk_files import predicted_disk
from tokmill.dataset.packing import pack
from tokmill.engines.engine import REFERENCE
from tokmill.engines.routing import RoutedEngine
from tokmill.errors import RecordError
from tokmill.recipes.engines import reference_loader
from tokmill.recipes.memory_bounds import (
    BASE_BYTES,
    BLOCK_COPIES,
    WRITER_BYTES,
    blocks_bytes,
    engine_bytes,
    n_writers,
)
from tokmill.recipes.table import Recipes
from tokmill.run.forecast.dataset_size import input_bytes_of, size_of
from tokmill.run.forecast.estimate import (
    EncodedSample,
    Fragments,
    encode_sample,
    estimate_totals,
    exact_totals,
)
from tokmill.sources.formats import format_named
from tokmill.words.plural import plural

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.bill.dataset_size import DatasetSize
    from tokmill.bill.formula import Bill
    from tokmill.engines.engine import Engine
    from tokmill.recipes.spec import Part, RunSpec
    from tokmill.run.forecast.sample import InputSample
    from tokmill.settings.schema import Config

    Floats = npt.NDArray[np.float64]

SAMPLE_FRACTION = 0.049
"""Share of a large input: at most 5% is read."""

SAMPLE_LIMIT_BYTES = 16 << 20

COMPLETE_BYTES = 4 << 20
"""An input of at most these bytes is read completely: a twentieth of it would show little."""

LEAST_BYTES = 2 << 20
"""Least bytes of the sample of a larger input, in some hundred windows and fragments."""

PACKED_DOCUMENTS = 1 << 15
"""Samples that are packed to measure how full rows get."""

START_S = 1.5
"""Starting, choosing and loading an engine, measured with a vocabulary of 50,000."""

CACHE_BYTES_PER_TEXT_BYTE = 16
"""Most bytes of engine caches per byte of text with only new words, measured."""

WRITERS_FROM_BYTES = 4 << 20
"""Fewer bytes of chats are rendered before processes would have started."""

_PAGED_FILES = 64
"""Files whose footers are read for the size of their pages."""

FILE_S = 130e-6
"""Time to find, open, read, check and count a small file, measured with a million."""

FILE_BYTES = 800
"""Memory for each file in the process that plans and finishes, measured with a million."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected dataset, time and memory of a run; `size` and `disk` are of the dataset.

    `is_counted`: all input was read, and tokens, documents and drops are exact. Otherwise the
    bands, such as `tokens_low` to `tokens_high`, hold in 9 of 10 cases.
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
        """Return the forecast as plain values."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**plain, "size": asdict(self.size), "disk": self.disk.as_json()}


def sample_limits(parts: tuple[Part, ...]) -> tuple[int, int]:
    """Return the bytes that a forecast may read in records, and in all.

    Both are the complete input if it is small. The last record can pass the first limit; the
    fragments get the rest.
    """
    total = input_bytes_of(parts)
    if total <= COMPLETE_BYTES:
        return total, total
    limit = min(max(int(total * SAMPLE_FRACTION), LEAST_BYTES), SAMPLE_LIMIT_BYTES)
    return limit // 2, limit


def forecast(spec: RunSpec, parts: tuple[Part, ...], found: InputSample, workers: int) -> Forecast:
    """Return the forecast of a run from its sample, whose blocks were kept.

    Raises:
        RecordError: the sample has no document, or the run would make none.
    """
    if not found.texts:
        raise RecordError(_no_document(found))
    sampled, speed = _encoded(spec, parts, found)
    if found.is_complete and not len(sampled.lengths):
        raise RecordError(_nothing_kept(sampled))
    bytes_per = _disk_bytes_of(spec.config)
    input_bytes, n_slices = input_bytes_of(parts), sum(len(part.slices) for part in parts)
    if found.is_complete:
        estimates = exact_totals(sampled, bytes_per)
    else:
        fragments = _fragments(spec, found)
        estimates = estimate_totals(input_bytes, found, sampled, fragments, bytes_per)
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
        found.is_complete,
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
        _memory(spec, text_bytes, workers) + workers * _page_bytes(parts) + n_slices * FILE_BYTES,
        sampled.rejects.total() / max(1, n_records),
        sampled.drops.total() / max(1, n_records),
        size,
        disk,
    )


def _encoded(
    spec: RunSpec, parts: tuple[Part, ...], found: InputSample
) -> tuple[EncodedSample, float]:
    """Return the sample as the run encodes it, and the bytes of text encoded per second."""
    recipes = Recipes(spec)
    part_of = {piece.file: part for part in parts for piece in part.slices}
    recipes.of(parts[0])  # loading it is not encoding
    start = time.perf_counter()
    sampled = encode_sample(lambda file: recipes.of(part_of[file]), found)
    taken_s = time.perf_counter() - start
    measured = spec.engine.mb_per_s.get(spec.engine.name)
    speed = max(1, int(sampled.text_bytes.sum())) / max(taken_s, 1e-9)
    return sampled, measured * 1e6 if measured else speed


def _nothing_kept(sampled: EncodedSample) -> str:
    found = [*sampled.rejects.most_common(), *sampled.drops.most_common()]
    reasons = ", ".join(f"{n:,} {reason}" for reason, n in found)
    records = plural(int(sampled.records.sum()), "record")
    return f"the run would make no document of {records} ({reasons})"


def _disk_bytes_of(config: Config) -> tuple[float, float]:
    """Return the bytes on disk of a token and of a document, for the band of their sum."""
    sft = config.sft
    beside = 0 if sft is None else 1 + 4 * (sft.weights == "file")
    of_token = np.dtype(config.output.dtype).itemsize + beside
    rows = 2 if sft is not None and sft.packed_rows else 1
    return float(of_token * rows), 24.0


def _rows(sampled: EncodedSample, size: DatasetSize) -> int:
    """Return the expected number of packed rows, from packing samples of the same lengths."""
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
    """Return the tokens of the raw input of fragments and windows."""
    raw = np.zeros((2, len(found.window_read)))
    if not found.fragments:
        return Fragments(*np.zeros((3, 0)), *raw)
    engine = spec.engines.share(
        spec.engine.name,
        spec.tokenizer,
        control_in_text=spec.config.tokenizer.control_tokens_in_text,
        n_threads=spec.n_threads,
    ).take()
    engine = RoutedEngine(engine, reference_loader(spec, spec.tokenizer), spec.engine.routed)
    for row, amounts in zip(raw, _amounts(engine, found.raw), strict=True):
        np.add.at(row, found.raw_windows, amounts)
    line_ends = np.array([text.count("\n") for text in found.fragments], float)
    return Fragments(*_amounts(engine, found.fragments), line_ends, *raw)


def _amounts(engine: Engine, texts: list[str]) -> tuple[Floats, Floats]:
    """Return the tokens and the bytes of each text."""
    lengths = engine.encode(pa.array(texts, pa.large_string())).lengths
    return lengths.astype(float), np.array([len(text.encode()) for text in texts], float)


def _no_document(found: InputSample) -> str:
    if not found.n_rejects:
        what = f" ({found.unread[0]})" if found.unread else ""
        return f"the sample of the input holds no record{what}: nothing to predict from"
    reasons = ", ".join(f"{n:,} {reason}" for reason, n in found.rejects.most_common(3))
    return f"every sampled record was rejected ({reasons}); the first: {found.first_reject}"


def _memory(spec: RunSpec, text_bytes: int, workers: int) -> int:
    """Return the bound of the peak memory; a small corpus does not fill blocks and caches."""
    blocks = min(blocks_bytes(spec), BLOCK_COPIES * text_bytes)
    caches = min(engine_bytes(spec), CACHE_BYTES_PER_TEXT_BYTE * text_bytes)
    engine = caches if spec.engine.name != REFERENCE else 0
    writers = WRITER_BYTES * n_writers(spec) if text_bytes >= WRITERS_FROM_BYTES else 0
    return workers * (BASE_BYTES + engine + blocks + writers)


def _page_bytes(parts: tuple[Part, ...]) -> int:
    """Return the memory of the largest page that a worker unpacks at once.

    Large pages are in large files, and a file of an object store takes two requests.
    """
    files = {piece.file for part in parts for piece in part.slices if piece.n_bytes}
    largest = nlargest(_PAGED_FILES, files, key=lambda file: file.n_bytes)
    held = [(format_named(file.format).held_bytes, file) for file in largest]
    return max((bytes_of(file) for bytes_of, file in held if bytes_of), default=0)
