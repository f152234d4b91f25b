"""Documents inside rows of tokens: where they start, position ids, cumulative lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


def position_ids(starts: npt.NDArray[np.int64], n_tokens: int) -> npt.NDArray[np.int64]:
    """Return the place of each token in its segment: (n_tokens,) int64.

    Args:
        starts: (m,) int64, where segments start; the first is 0, and they increase.
        n_tokens: tokens of all segments.
    """
    lengths = np.diff(starts, append=n_tokens)
    return np.arange(n_tokens) - np.repeat(starts, lengths)


def cu_seqlens(position_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Return the cumulative lengths of the segments of all rows, end to end: (m + 1,) int32.

    A segment starts where the position is 0. This is the form that FlashAttention takes for a batch
    of one row; rows of a batch count as one row.

    Args:
        position_ids: of any shape, such as (rows, length).
    """
    flat = position_ids.reshape(-1)
    return np.append(np.flatnonzero(flat == 0), len(flat)).astype(np.int32)
