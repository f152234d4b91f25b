"""The reference alone: `encode_batch` over ready text in memory, with all cores."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.corpus import n_text_bytes, read_text
from bench.libraries import is_sentencepiece, load_sentencepiece, load_tokenizers
from bench.values import Task, Timing

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 1024
"""Documents a call, as one feeds the library by hand."""


def run(task: Task) -> Timing:
    """Time the calls; ids stay in the library's own objects and are only counted."""
    column = read_text(Path(task.text))
    texts = column.to_pylist()
    encode = _encoder(Path(task.tokenizer), task.cores)
    n_tokens = 0
    start = time.perf_counter()
    for i in range(0, len(texts), CHUNK):
        n_tokens += encode(texts[i : i + CHUNK])
    seconds = time.perf_counter() - start
    return Timing(seconds, seconds, n_text_bytes(column), n_tokens + len(texts), len(texts))


def _encoder(tokenizer: Path, cores: int) -> Callable[[list[str]], int]:
    if is_sentencepiece(tokenizer):
        processor = load_sentencepiece(tokenizer)
        return lambda texts: sum(
            len(ids) for ids in processor.encode(texts, out_type=int, num_threads=cores)
        )
    library = load_tokenizers(tokenizer)
    return lambda texts: sum(
        len(encoding) for encoding in library.encode_batch(texts, add_special_tokens=False)
    )
