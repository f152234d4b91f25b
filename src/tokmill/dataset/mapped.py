"""Map a file of a dataset into memory: the one way in which its arrays are opened.

A dataset may come from a stranger: a pipe in place of a shard must not make a reader wait. A link
to a file is followed, as in a snapshot of the Hugging Face Hub.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.opening import open_regular

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt


def map_file(path: Path, dtype: npt.DTypeLike = np.uint8, offset: int = 0) -> npt.NDArray[Any]:
    """Return the values of a regular file from byte `offset` on: (n,), read-only.

    Raises:
        OSError: it cannot be opened, or is no regular file.
        ValueError: it is empty, or its size is no multiple of a value.
    """
    with open_regular(path, follow_links=True) as file:
        return np.memmap(file, dtype=dtype, mode="r", offset=offset)
