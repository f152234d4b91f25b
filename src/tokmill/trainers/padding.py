"""Sizes that trainers pad to a multiple: rows of a vocabulary, samples of a pack."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

_Size = TypeVar("_Size", int, npt.NDArray[np.int64])


def padded(n: _Size, multiple: int) -> _Size:
    """Return the next multiple, or `n` itself if it is one; of each number of an array."""
    return -(-n // multiple) * multiple
