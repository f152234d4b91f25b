"""Predict the size of a dataset from the texts of a sample, roughly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokmill.bill.dataset_size import DatasetSize
from tokmill.bill.disk_files import predicted_disk
from tokmill.run.forecast.estimate import HEADS_ERROR

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.bill.formula import Bill
    from tokmill.engines.engine import Engine
    from tokmill.recipes.spec import Part
    from tokmill.run.forecast.sample import InputSample
    from tokmill.settings.schema import Config
    from tokmill.tokenizer.tokenizer import Tokenizer

SPREAD_ERROR = 0.03
"""Error of this prediction from a sample of all input, measured with 9 tokenizers;
`estimate_totals` is better."""


def expected_size(
    config: Config,
    tokenizer: Tokenizer,
    parts: tuple[Part, ...],
    found: InputSample,
    engine: Engine,
) -> DatasetSize:
    """Return the size of a dataset, from a sample with at least one document."""
    # The template of a chat writes the ends; they are in the lengths.
    n_ends = 0 if config.sft is not None else 1 if tokenizer.bos is None else 2
    lengths = _kept_lengths(config, engine, found) + n_ends
    input_bytes = input_bytes_of(parts)
    kept = len(lengths) / (len(found.texts) + found.n_rejects)
    documents = round(found.records_per_byte * input_bytes * kept)
    tokens = round(int(lengths.sum()) * input_bytes / found.input_bytes * _density(engine, found))
    return size_of(config, tokenizer, parts, tokens, documents, lengths)


def expected_disk(size: DatasetSize, parts: tuple[Part, ...], found: InputSample) -> Bill:
    """Return the disk space of a dataset of this size."""
    slices = sum(len(part.slices) for part in parts)
    error = HEADS_ERROR if found.heads_only else SPREAD_ERROR
    return predicted_disk(size, slices=slices, error=error)


def size_of(
    config: Config,
    tokenizer: Tokenizer,
    parts: tuple[Part, ...],
    tokens: int,
    documents: int,
    lengths: npt.NDArray[np.int64],
) -> DatasetSize:
    """Return the size of a dataset; `lengths` are the tokens of sampled documents."""
    sft, val = config.sft, config.output.val_fraction
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
        length_histogram=_histogram(lengths, documents),
        capacity=0 if sft is None else sft.packing,
        packed_rows=sft is not None and sft.packed_rows,
        val_tokens=round(tokens * val),
        val_documents=round(documents * val),
    )


def input_bytes_of(parts: tuple[Part, ...]) -> int:
    """Return the stored bytes of all input."""
    return sum(piece.n_bytes for part in parts for piece in part.slices)


def _histogram(lengths: npt.NDArray[np.int64], documents: int) -> tuple[int, ...]:
    """Return the expected number of documents of 2^i to 2^(i+1)-1 tokens."""
    if not len(lengths):
        return ()
    counts = np.bincount(np.frexp(np.maximum(lengths, 1))[1] - 1)
    return tuple(round(n * documents / len(lengths)) for n in counts.tolist())


def _density(engine: Engine, found: InputSample) -> float:
    """Return the tokens per byte of the fragments, divided by those of the sampled records.

    Both are raw input in pieces of one size, so that JSON and cut words count equally.
    """
    if not found.fragments:
        return 1.0
    return _tokens_per_byte(engine, found.fragments) / _tokens_per_byte(engine, found.raw)


def _tokens_per_byte(engine: Engine, texts: list[str]) -> float:
    text = pa.array(texts, pa.large_string())
    return len(engine.encode(text).ids) / sum(len(piece.encode()) for piece in texts)


def _kept_lengths(config: Config, engine: Engine, found: InputSample) -> npt.NDArray[np.int64]:
    """Return the tokens of each sampled document within the limits: (n,)."""
    limits = config.limits
    batch = engine.encode(pa.array(found.texts, pa.large_string()))
    lengths = batch.lengths + np.array(found.n_control or 0, np.int64)
    keep = lengths >= limits.min_tokens
    if limits.max_tokens:
        keep &= lengths <= limits.max_tokens
    return lengths[keep]
