"""A dataset as samples for a training loop: documents, windows and packs in a seeded order.

A source is a random-access collection of samples: it has `len` and `[i]`, and `__getitems__` reads
several samples at once. PyTorch's DataLoader, Grain and torchtitan take it as it is. `dataset` is a
directory or an open `tokmill.Dataset`.

    >>> source = tokmill.loader.windows("out", length=1024, shift=True)  # for your own loop
    >>> batch = source.batch([0, 5, 7])
    >>> batch["input_ids"].shape, batch["labels"].shape
    ((3, 1024), (3, 1024))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.lazy import attach

if TYPE_CHECKING:
    from tokmill.loader.balance import AttentionCost, Balance
    from tokmill.loader.document_source import DocumentSource, documents
    from tokmill.loader.loader import BatchSampler, Loader, collate, pinned_empty, tensors
    from tokmill.loader.order import shuffled
    from tokmill.loader.pack_source import PackSource, packs
    from tokmill.loader.phases import Phase, read_phases
    from tokmill.loader.window_source import WindowSource, windows

__all__ = [
    "AttentionCost",
    "Balance",
    "BatchSampler",
    "DocumentSource",
    "Loader",
    "PackSource",
    "Phase",
    "WindowSource",
    "collate",
    "documents",
    "packs",
    "pinned_empty",
    "read_phases",
    "shuffled",
    "tensors",
    "windows",
]

_MODULES = {
    **dict.fromkeys(("AttentionCost", "Balance"), "balance"),
    "DocumentSource": "document_source",
    "PackSource": "pack_source",
    "Phase": "phases",
    "WindowSource": "window_source",
    **dict.fromkeys(("BatchSampler", "Loader", "collate", "pinned_empty", "tensors"), "loader"),
    "documents": "document_source",
    "packs": "pack_source",
    "read_phases": "phases",
    "shuffled": "order",
    "windows": "window_source",
}
if not TYPE_CHECKING:
    __getattr__, __dir__ = attach(__name__, _MODULES)
