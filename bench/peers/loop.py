"""A plain per-record loop: what one writes first. Reads, parses, renders, encodes, writes."""

from __future__ import annotations

import array
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.corpus import SEPARATOR, TERMINATOR
from bench.libraries import described, is_sentencepiece, load_sentencepiece, load_tokenizers
from bench.parity import render
from bench.values import Task, Timing

if TYPE_CHECKING:
    from collections.abc import Callable


def run(task: Task) -> Timing:
    """Time the loop and its one file; the tokenizer is loaded before."""
    encode = _encoder(Path(task.tokenizer))
    tokenizer = described(task.tokenizer, task.eos)
    eos = tokenizer.eos.id
    n_bytes = n_documents = 0
    start = time.perf_counter()
    tokens = array.array("H" if tokenizer.max_emittable_id < 1 << 16 else "I")
    for path in task.inputs:
        with Path(path).open(encoding="utf-8", newline="\n") as lines:
            for line in lines:
                text = render(json.loads(line), SEPARATOR, TERMINATOR)
                tokens.extend(encode(text))
                tokens.append(eos)
                n_bytes += len(text.encode())
                n_documents += 1
    with (Path(task.work) / "tokens.bin").open("wb") as file:
        tokens.tofile(file)
    seconds = time.perf_counter() - start
    return Timing(seconds, seconds, n_bytes, len(tokens), n_documents)


def _encoder(tokenizer: Path) -> Callable[[str], list[int]]:
    if is_sentencepiece(tokenizer):
        processor = load_sentencepiece(tokenizer)
        return lambda text: list(processor.encode(text, out_type=int))
    library = load_tokenizers(tokenizer)
    return lambda text: list(library.encode(text, add_special_tokens=False).ids)
