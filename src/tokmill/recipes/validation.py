"""Which documents are validation: a hash of their text decides, so equal texts share a split."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from tokmill.offsets import byte_offsets

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa


def validation_documents(
    text: pa.LargeStringArray, fraction: float, offsets: npt.NDArray[np.int64] | None = None
) -> npt.NDArray[np.bool_]:
    """Return which documents are validation: (n,) bool.

    A document is validation if the xxh3-64 hash (seed 0) of its UTF-8 bytes, divided by 2^64, is
    below `fraction`. `offsets`: (n + 1,), its bytes in the column; None: a document for each text.
    """
    if offsets is None:
        offsets = byte_offsets(text)
    n_texts = len(offsets) - 1
    if fraction <= 0:
        return np.zeros(n_texts, bool)
    data = memoryview(text.buffers()[2] or b"")
    threshold = int(fraction * (1 << 64))
    hashes = (xxhash.xxh3_64_intdigest(data[i:j]) for i, j in pairwise(offsets.tolist()))
    return np.fromiter((found < threshold for found in hashes), bool, n_texts)
