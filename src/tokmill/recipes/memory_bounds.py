"""The memory of a worker process: how much blocks in flight and engine caches may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokmill.engines.engine import REFERENCE
from tokmill.machine.limits import usable_memory
from tokmill.sources.streams import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tokmill.recipes.spec import RunSpec
    from tokmill.values import Records, Reject

BASE_BYTES = 230 << 20
"""A worker before its first block: interpreter, Arrow, tokenizer, two engines loaded."""

BLOCK_COPIES = 6
"""Copies of a block that is being encoded: bytes, columns, text, ids, tokens."""

FINISHED_COPIES = 3
"""Copies of a block that is encoded and not yet written: tokens, masks, places of documents."""

ENGINE_THREAD_BYTES = 200 << 20
"""Engine cache for each thread. gigatoken with gpt2 fills 100 MB with 44 MB of Chinese, and 25 MB
with as much English; a smaller cache would be emptied and filled again."""

LEAST_ENGINE_BYTES = 100 << 20
"""Engine cache by default, even if the machine has little memory."""

WRITER_BYTES = 80 << 20
"""A child process that renders conversations."""

_WRITERS_FROM_BYTES = 4 << 20
"""Fewer bytes of chats are rendered before processes would have started."""

TEXT_COPIES = 150
"""Memory that encodes one long text, per byte. The reference takes 60 to 142 bytes for any text
(gpt2, qwen2.5, llama 2, t5, bert; English, Chinese, spaces, one word), SentencePiece 21 to 47.
gigatoken takes 39 and fastokens 53 for one word without a break, but either may leave a text to the
reference. Measured with texts of 4 to 16 MiB, 2026-11-29."""

_SHORT_TEXT = 1 << 20
"""Texts up to here are encoded together, in memory that `BASE_BYTES` holds."""

_TEXT_SHARE = 0.8
"""Of the machine's memory, for one text."""

_CACHE_BYTES_PER_TEXT_BYTE = 16
"""Most bytes of engine caches per byte of text with only new words."""

_WAITING_BLOCKS = 2
"""Blocks in flight besides one for each thread: the next to write and the next to encode."""


def blocks_bytes(spec: RunSpec) -> int:
    """Return the memory that the blocks of a worker may take; a larger block is processed alone.

    Enough for a block on every thread and as many finished ones behind a slow one, unless this is
    over a quarter of the memory.
    """
    asked_bytes, n_threads = spec.config.run.block_bytes, spec.n_threads
    # A block is complete after the chunk that fills it.
    block_bytes = asked_bytes + min(asked_bytes, CHUNK_BYTES)
    n_copies = BLOCK_COPIES * (n_threads + _WAITING_BLOCKS) + FINISHED_COPIES * n_threads
    if not spec.memory_bytes:
        return n_copies * block_bytes
    return min(n_copies * block_bytes, max(spec.memory_bytes // 4, 2 * BLOCK_COPIES * block_bytes))


def long_text_bytes(n_bytes: int) -> int:
    """Return the memory that encodes a text of so many bytes, beside that of any other run."""
    return TEXT_COPIES * max(0, n_bytes - _SHORT_TEXT)


def refuse_long_texts(
    records: Records, rows: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> Iterator[tuple[int, Reject]]:
    """Yield row and reject of each text that this machine has not the memory to encode.

    `rows`: (n,) the row of each text's record; `sizes`: (n,) its bytes. The limit depends neither
    on the workers nor on the engine: in this memory no run could encode the text.
    """
    memory = usable_memory()
    if not memory or not len(sizes):
        return
    longest = _SHORT_TEXT + int(_TEXT_SHARE * memory / TEXT_COPIES)
    for position in np.flatnonzero(sizes > longest).tolist():
        row, size = int(rows[position]), int(sizes[position])
        message = (
            f"a text of {size:,} bytes takes up to {long_text_bytes(size) / 1e9:.1f} GB of memory "
            f"to encode, and there are {memory / 1e9:.1f} GB: split the record, or run where "
            "there is more"
        )
        yield row, records.reject(row, "text too long for the memory", message)


def n_writers(spec: RunSpec) -> int:
    """Return the number of child processes that render conversations.

    One for each thread, as far as a quarter of the memory holds them; 0 for pretraining and for one
    thread. A template from outside tokmill and a --weigh have at least one, as they may not run in
    this process.
    """
    wanted = spec.n_threads
    if spec.memory_bytes:
        wanted = min(wanted, spec.memory_bytes // (4 * WRITER_BYTES))
    if spec.config.sft is None:
        return 0
    from tokmill.chat.template_source import is_foreign

    is_outside = is_foreign(spec.template) or bool(spec.config.sft.weigh)
    return wanted if wanted >= 2 else int(is_outside)


def worker_bytes(spec: RunSpec, text_bytes: int = 1 << 60) -> int:
    """Return the bound of the peak memory of one worker.

    `text_bytes`: of the corpus; a small one does not fill blocks and caches.
    """
    blocks = min(blocks_bytes(spec), BLOCK_COPIES * text_bytes)
    caches = min(engine_bytes(spec), _CACHE_BYTES_PER_TEXT_BYTE * text_bytes)
    n_processes = n_writers(spec) if text_bytes >= _WRITERS_FROM_BYTES else 0
    is_reference = spec.engine.name == REFERENCE  # it has no cache
    return BASE_BYTES + blocks + (0 if is_reference else caches) + WRITER_BYTES * n_processes


def engine_bytes(spec: RunSpec) -> int:
    """Return the bytes of cache that the engines of a worker may fill, together.

    By default 200 MiB for each thread, as far as three quarters of the memory hold this and the
    rest of the process.
    """
    asked = spec.config.run.engine_memory_bytes
    if asked:
        return asked
    wanted = spec.n_threads * ENGINE_THREAD_BYTES
    if not spec.memory_bytes:
        return wanted
    rest = BASE_BYTES + blocks_bytes(spec) + WRITER_BYTES * n_writers(spec)
    return min(wanted, max(spec.memory_bytes * 3 // 4 - rest, LEAST_ENGINE_BYTES))
