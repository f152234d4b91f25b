"""Sizes of optional files of a dataset: masks, packing, uint32, layouts of other trainers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.memory.formula import Formula

if TYPE_CHECKING:
    from tokmill.memory.dataset import DatasetSize
    from tokmill.memory.formula import Line

_LAYOUT, _EXACT = "docs/format.md", "none"
_ROWS = "the fewest rows that hold the tokens; best fit needs 0 to 5 % more"

ADD_MASKS = Formula("loss masks", "T", _LAYOUT, _EXACT)
ADD_WEIGHTS = Formula("loss weights (.weight)", "4 * T", _LAYOUT, _EXACT)
ADD_UINT32 = Formula("uint32 instead of uint16", "2 * T", _LAYOUT, _EXACT)
ADD_PACKS = Formula("packing: the index", "8 * (D + rows + 1)", _LAYOUT, _ROWS)
ADD_ROWS = Formula(
    "packing: the padded rows", "(q + beside) * rows * row_tokens + 20 * rows + 42", _LAYOUT, _ROWS
)
EXPORT_LINKED = Formula(
    "nanoGPT, Megatron, OLMo-core, nanotron: the same .bin, linked",
    "0",
    "they read a raw body of ids; Megatron the .idx too, OLMo-core and datatrove the .mask",
    "without the small lists beside it",
)
EXPORT_INDEX = Formula(
    "datatrove, nanotron: .ds.index", "8 * D", "datatrove 0.10.1, its reader", _EXACT
)
EXPORT_HEADED = Formula(
    "llm.c, modded-nanogpt, litdata: a second .bin, with a header",
    "q * T + 1024 * files",
    "llm.c f1e2ace, its dataloader.h: a header of 256 int32",
    "files of at most 2^31 B may take more headers",
)
MEGATRON_CACHE = Formula(
    "Megatron's indices, cached at load",
    "4 * ceil(epochs) * D + 12 * epochs * T / s",
    "Megatron-LM d98e8a64: document index int32, sample index 2 int32, shuffle index uint32",
    "npy headers and its second split left out",
)


def additions(size: DatasetSize, *, sequence: int, epochs: float) -> tuple[Line, ...]:
    """Return what each choice would add to the disk; they are choices and do not add up.

    Args:
        size: of the dataset.
        sequence: tokens of a training sequence, more than 0, and of a packed row.
        epochs: times over the dataset.
    """
    capacity = size.capacity or sequence
    symbols = {
        "T": size.tokens, "D": size.documents, "files": size.shards,
        "q": size.item_bytes, "beside": size.bytes_per_token - size.item_bytes,
        "row_tokens": capacity, "rows": -(-size.tokens // capacity), "s": sequence,
        "epochs": epochs,
    }  # fmt: skip
    chosen = [
        (ADD_MASKS, not size.mask),
        (ADD_WEIGHTS, size.mask and not size.weights),
        (ADD_UINT32, size.item_bytes == 2),
        (ADD_PACKS, size.mask and not size.capacity),
        (ADD_ROWS, size.mask and not size.packed_rows),
        (EXPORT_LINKED, True),
        (EXPORT_INDEX, True),
        (EXPORT_HEADED, True),
        (MEGATRON_CACHE, True),
    ]
    return tuple(formula.line(symbols) for formula, applies in chosen if applies)
