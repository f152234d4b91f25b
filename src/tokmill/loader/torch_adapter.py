"""Batches as PyTorch tensors: without a copy, in pinned memory where there is a GPU.

torch is imported when a function is called, so that the loader works without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from tokmill.loader.source import Arrays


def tensors(batch: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """Return the arrays of a batch as tensors that share their memory."""
    import torch

    return {name: torch.from_numpy(values) for name, values in batch.items()}


def pinned_empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array in pinned memory, or in ordinary memory where torch finds no GPU.

    To be passed as `allocate`: rows are then read straight into memory from which a GPU copies
    while the program goes on (`tensor.to("cuda", non_blocking=True)`). torch keeps pinned memory
    for the next batch, and hands it out again only when such copies have ended.
    """
    import torch

    if not torch.cuda.is_available():
        return np.empty(shape, dtype)
    kind = torch.from_numpy(np.empty(0, dtype)).dtype
    found: npt.NDArray[Any] = torch.empty(shape, dtype=kind, pin_memory=True).numpy()
    return found


def collate(rows: Sequence[Arrays], *, flatten: bool = False) -> dict[str, Any]:
    """Return rows as a batch of tensors, as the `collate_fn` of a DataLoader.

    `torch.utils.data.DataLoader(source, batch_size=8, collate_fn=tokmill.loader.collate)`

    `cu_seqlens` become those of all rows, end to end: (m + 1,) int32.

    Args:
        rows: samples of one source, by name.
        flatten: the rows of the batch stand end to end in one: (1, n_tokens) instead of
            (n, length). Needed for rows of different lengths, and by models that find samples by
            their position ids, as those of Hugging Face do with FlashAttention.

    Raises:
        UsageError: the rows have different lengths, and `flatten` is not set.
    """
    lengths = [len(row["input_ids"]) for row in rows]
    if not flatten and len(set(lengths)) > 1:
        raise UsageError(
            f"rows of {min(lengths):,} to {max(lengths):,} tokens do not stack: "
            "collate them with flatten=True"
        )
    batch: Arrays = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        if name == "cu_seqlens":
            starts = np.cumsum(lengths) - lengths
            ends = [own[1:] + start for own, start in zip(values, starts, strict=True)]
            batch[name] = np.concatenate([[0], *ends]).astype(np.int32)
        else:
            batch[name] = np.concatenate(values)[None] if flatten else np.stack(values)
    return tensors(batch)
