"""Memory for batches that is used again when nothing refers to the last batch in it any more.

The system clears each page of new memory when it is first written to, and for rows of 8,192 tokens
this took nine tenths of the time of a batch. An array that is returned is a view of its memory, and
so are all slices and tensors made of it: each holds a reference to the memory, not to the array. So
the number of references says whether anybody can still see it.
"""

from __future__ import annotations

import math
import sys
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

LEAST_BYTES = 1 << 16
"""Smaller arrays come from memory that the process has already."""


class BatchMemory:
    """Makes arrays like `numpy.empty`; safe to use from several threads.

    Args:
        most: arrays whose memory is kept. While more are in use, further ones have their own.
    """

    def __init__(self, most: int) -> None:
        self._lock, self._most = Lock(), most
        self._kept = [np.empty(0, np.uint8)]
        self._unused = sys.getrefcount(self._kept[0])  # differs between versions of Python
        self._kept.clear()
        # Without a lock of the interpreter, the number of references may be out of date.
        self._is_safe: bool = getattr(sys, "_is_gil_enabled", lambda: True)()

    def __call__(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an array with any content."""
        n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        if n_bytes < LEAST_BYTES or not self._is_safe:
            return np.empty(shape, dtype)
        with self._lock:
            for number in range(len(self._kept)):
                if sys.getrefcount(self._kept[number]) == self._unused:
                    if self._kept[number].nbytes != n_bytes:
                        self._kept[number] = np.empty(n_bytes, np.uint8)
                    return self._kept[number].view(dtype).reshape(shape)
            memory = np.empty(n_bytes, np.uint8)
            if len(self._kept) < self._most:
                self._kept.append(memory)
            return memory.view(dtype).reshape(shape)
