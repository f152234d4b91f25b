"""Where the documents of a shard end, and where a reader that looks for eos would end them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.dataset.reader import Shard
    from tokmill.trainers.source import ExportSource

_BLOCK = 1 << 22


def ends_of(shard: Shard, start: int, stop: int) -> npt.NDArray[np.int64]:
    """Return the ends of documents `start` to `stop` of a shard in tokens: int64, exclusive."""
    first = shard.offsets[start:stop] // shard.tokens.itemsize
    ends: npt.NDArray[np.int64] = first + shard.lengths[start:stop]
    return ends


def count_eos(source: ExportSource) -> tuple[int, int]:
    """Return how often OLMo-core would end a document inside one, and documents it would not end.

    Reads all tokens, unless the dataset's settings exclude both: in a dataset for pretraining each
    document ends with eos, and has none inside if control tokens in text are ordinary text.
    """
    tokenizer = source.manifest["config"].get("tokenizer", {})
    if source.kind == "pretrain" and tokenizer.get("control_tokens_in_text") in ("text", "reject"):
        return 0, 0
    n_inside = n_without = 0
    for split in source.splits:
        for shard in source.shards(split):
            n_found = _count_boundaries(shard, source)
            n_ended = 0
            for start in range(0, len(shard.lengths), _BLOCK):
                last = ends_of(shard, start, start + _BLOCK) - 1
                n_ended += int(np.count_nonzero(shard.tokens[last] == source.eos_id))
            n_inside += n_found - n_ended
            n_without += len(shard.lengths) - n_ended
    return n_inside, n_without


def _count_boundaries(shard: Shard, source: ExportSource) -> int:
    """Return the places where OLMo-core ends a document: eos, and bos after it if there is one."""
    bos = source.manifest["tokenizer"]["bos"]
    n_found, n_tokens = 0, len(shard.tokens)
    for start in range(0, n_tokens, _BLOCK):
        is_end = shard.tokens[start : start + _BLOCK] == source.eos_id
        if bos is not None:
            after = shard.tokens[start + 1 : start + _BLOCK + 1]
            is_end[: len(after)] &= after == bos["id"]
        n_found += int(np.count_nonzero(is_end))
    return n_found
