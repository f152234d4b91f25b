"""From an engine's ids to the tokens of a shard: bos and eos added, narrowed to its dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokmill.errors import TokenizerError

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.values import TokenBatch


def add_bos_eos(
    batch: TokenBatch, eos_id: int, bos_id: int | None, dtype: np.dtype[np.unsignedinteger]
) -> tuple[npt.NDArray[np.unsignedinteger], npt.NDArray[np.int64]]:
    """Return tokens of `dtype` with eos after every document, and bos before it if there is one.

    Documents `7 8` and `9` with eos 2 become tokens `7 8 2 9 2`, offsets `0 3 5`.

    Raises:
        TokenizerError: an id does not fit the dtype.
    """
    _check_fits(max(eos_id, bos_id or 0, int(batch.ids.max(initial=0))), dtype)
    n_added = 1 if bos_id is None else 2
    offsets = batch.offsets + n_added * np.arange(len(batch.offsets), dtype=np.int64)
    tokens = np.empty(int(offsets[-1]), dtype)
    is_text = np.ones(len(tokens), bool)
    is_text[offsets[1:] - 1] = False
    if bos_id is not None:
        is_text[offsets[:-1]] = False
    tokens[is_text] = batch.ids
    tokens[offsets[1:] - 1] = eos_id
    if bos_id is not None:
        tokens[offsets[:-1]] = bos_id
    return tokens, offsets


def narrow_ids(
    ids: npt.NDArray[np.uint32], dtype: np.dtype[np.unsignedinteger]
) -> npt.NDArray[np.unsignedinteger]:
    """Return ids in the dtype of a shard.

    Raises:
        TokenizerError: an id does not fit the dtype.
    """
    _check_fits(int(ids.max(initial=0)), dtype)
    return ids.astype(dtype)


def _check_fits(largest: int, dtype: np.dtype[np.unsignedinteger]) -> None:
    """Raise `TokenizerError` for ids that NumPy would wrap without a word."""
    if largest > np.iinfo(dtype).max:
        raise TokenizerError(f"token id {largest} does not fit {dtype.name}")
