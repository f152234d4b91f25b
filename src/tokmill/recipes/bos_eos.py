"""From an engine's ids to what a shard holds: bos and eos placed, narrowed to the shard's dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokmill.errors import TokenizerError

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.values import TokenBatch


@dataclass(frozen=True, slots=True)
class Ends:
    """The ids placed around every document, and the dtype of the shard they go to."""

    eos_id: int
    bos_id: int | None
    dtype: np.dtype[np.unsignedinteger]

    @property
    def n_added(self) -> int:
        """Give the number of ids that every document gets."""
        return 1 if self.bos_id is None else 2


def add_bos_eos(
    batch: TokenBatch, ends: Ends
) -> tuple[npt.NDArray[np.unsignedinteger], npt.NDArray[np.int64]]:
    """Put eos after every document, and bos before it if there is one.

    Documents `7 8` and `9` with eos 2 become tokens `7 8 2 9 2`, offsets `0 3 5`.

    Returns:
        tokens (n_tokens + n_added * n_documents,) of `ends.dtype`, and offsets (n_documents + 1,).

    Raises:
        TokenizerError: an id does not fit the dtype; NumPy alone would wrap it in silence.
    """
    check_fits(max(ends.eos_id, ends.bos_id or 0, int(batch.ids.max(initial=0))), ends.dtype)
    offsets = batch.offsets + ends.n_added * np.arange(len(batch.offsets), dtype=np.int64)
    tokens = np.empty(int(offsets[-1]), ends.dtype)
    is_text = np.ones(len(tokens), bool)
    is_text[offsets[1:] - 1] = False
    if ends.bos_id is not None:
        is_text[offsets[:-1]] = False
    tokens[is_text] = batch.ids
    tokens[offsets[1:] - 1] = ends.eos_id
    if ends.bos_id is not None:
        tokens[offsets[:-1]] = ends.bos_id
    return tokens, offsets


def narrowed(
    ids: npt.NDArray[np.uint32], dtype: np.dtype[np.unsignedinteger]
) -> npt.NDArray[np.unsignedinteger]:
    """Give ids in the dtype of a shard.

    Raises:
        TokenizerError: an id does not fit the dtype; NumPy alone would wrap it in silence.
    """
    check_fits(int(ids.max(initial=0)), dtype)
    return ids.astype(dtype)


def check_fits(largest: int, dtype: np.dtype[np.unsignedinteger]) -> None:
    """Make sure that ids up to `largest` can be written; raises `TokenizerError`."""
    if largest > np.iinfo(dtype).max:
        raise TokenizerError(f"token id {largest} does not fit {dtype.name}")
