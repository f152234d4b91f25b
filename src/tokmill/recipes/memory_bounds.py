"""How much memory a worker process may take: for blocks in flight, and for what engines learn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.chat.templates import is_foreign
from tokmill.sources.streams import CHUNK_BYTES

if TYPE_CHECKING:
    from tokmill.recipes.spec import RunSpec

BASE_BYTES = 230 << 20
"""A worker before its first block: interpreter, Arrow, tokenizer, two engines loaded."""

BLOCK_COPIES = 6
"""A block in flight stands as bytes, columns, text, ids and tokens."""

ENGINE_THREAD_BYTES = 200 << 20
"""Memory for what an engine learns, for each thread: gigatoken with gpt2 fills 100 MB of it with
44 MB of Chinese, and 25 MB with as much English. Below that it would forget and learn again."""

LEAST_ENGINE_BYTES = 100 << 20
"""The default gives engines this much, however little memory there is."""

WRITER_BYTES = 80 << 20
"""A process that writes records of chats."""

_WAITING_BLOCKS = 2
"""Blocks in flight beyond one for each thread: the next to write, and the next to encode."""


def ahead_bytes(spec: RunSpec) -> int:
    """Return the bytes of blocks that may be in flight at once; one larger block goes alone.

    Enough for a block on every thread. All their copies take at most a quarter of the memory.
    """
    batch_bytes = spec.config.run.batch_bytes
    # A block ends with the chunk that fills it.
    block_bytes = batch_bytes + min(batch_bytes, CHUNK_BYTES)
    wanted = (spec.n_threads + _WAITING_BLOCKS) * block_bytes
    if not spec.memory_bytes:
        return wanted
    return min(wanted, max(spec.memory_bytes // (4 * BLOCK_COPIES), 2 * block_bytes))


def n_writers(spec: RunSpec) -> int:
    """Return how many processes may write records of chats: as many as a quarter of memory holds.

    No more than threads; 0 where there are none, which is for pretraining and for one thread. A
    template that did not come with tokmill has one in any case, as it may not run elsewhere.
    """
    wanted = spec.n_threads
    if spec.memory_bytes:
        wanted = min(wanted, spec.memory_bytes // (4 * WRITER_BYTES))
    if spec.config.sft is None:
        return 0
    return wanted if wanted >= 2 else int(is_foreign(spec.template))


def engine_bytes(spec: RunSpec) -> int:
    """Return the bytes that a worker's engines, together, may learn.

    By default 200 MiB for each thread, as far as three quarters of the memory hold that and the
    rest of the process.
    """
    asked = spec.config.run.engine_memory_bytes
    if asked:
        return asked
    wanted = spec.n_threads * ENGINE_THREAD_BYTES
    if not spec.memory_bytes:
        return wanted
    rest = BASE_BYTES + BLOCK_COPIES * ahead_bytes(spec) + WRITER_BYTES * n_writers(spec)
    return min(wanted, max(spec.memory_bytes * 3 // 4 - rest, LEAST_ENGINE_BYTES))
