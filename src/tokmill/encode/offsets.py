"""The byte offsets of documents inside an Arrow column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa


def byte_offsets(text: pa.LargeStringArray) -> npt.NDArray[np.int64]:
    """View where n documents begin and end in the column's buffer of bytes: (n + 1,) int64."""
    offsets = np.frombuffer(text.buffers()[1], np.int64)
    return offsets[text.offset : text.offset + len(text) + 1]
