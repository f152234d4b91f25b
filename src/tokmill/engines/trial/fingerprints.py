"""A number for the ids of each text, so that two processes can compare many texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import xxhash

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokmill.engines.engine import Engine

_CALL_TEXTS = 512
"""About 200 kB, of nearly as many tokens: the reference takes over 100 bytes for each."""


def fingerprints(engine: Engine, texts: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Return the xxh3-64 of the ids of each of n texts: (n,)."""
    found = np.empty(len(texts), np.uint64)
    for start in range(0, len(texts), _CALL_TEXTS):
        some = texts[start : start + _CALL_TEXTS]
        batch = engine.encode(pa.array(some, pa.large_string()))
        data, offsets = batch.ids.astype(np.uint32).tobytes(), batch.offsets.tolist()
        found[start : start + len(some)] = [
            xxhash.xxh3_64_intdigest(data[4 * offsets[i] : 4 * offsets[i + 1]])
            for i in range(len(some))
        ]
    return found
