"""Documents of a folder by number, for Grain and torchtitan. Needs NumPy alone.

`tokmill export --to torchtitan` writes a copy of this file beside the folders of the splits.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import os
    from typing import SupportsIndex

    import numpy.typing as npt

IGNORE_INDEX = -100
"""The label of a token that is not trained."""


class DocumentFiles:
    """The documents of a folder with `tokens-*.bin`, `document_offsets.npy` and maybe `mask-*.bin`.

    A pickled copy opens the files again, in the worker that unpickles it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.offsets = np.load(self.folder / "document_offsets.npy", mmap_mode="r")
        paths = sorted(self.folder.glob("tokens-*.bin"))
        n_bytes = sum(path.stat().st_size for path in paths)
        dtype = f"<u{n_bytes // int(self.offsets[-1])}"
        self.tokens = [np.memmap(path, dtype=dtype, mode="r") for path in paths]
        masks = sorted(self.folder.glob("mask-*.bin"))
        self.masks = [np.memmap(path, dtype="u1", mode="r") for path in masks]
        self.stops = np.cumsum([len(body) for body in self.tokens])

    def __reduce__(self) -> tuple[Any, ...]:
        return DocumentFiles, (self.folder,)

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.offsets) - 1

    def __getitem__(self, index: SupportsIndex) -> dict[str, npt.NDArray[np.int64]]:
        """Return the inputs of a document, and the label of each: the token after it, or -100.

        (n - 1,) int64 each for a document of n tokens, eos included.
        """
        number = range(len(self))[index]
        start, stop = self.offsets[number : number + 2].tolist()
        body = int(np.searchsorted(self.stops, start, side="right"))
        first = int(self.stops[body]) - len(self.tokens[body])
        span = slice(start - first, stop - first)
        ids = self.tokens[body][span].astype(np.int64)
        labels = ids[1:].copy()
        if self.masks:
            labels[self.masks[body][span][1:] == 0] = IGNORE_INDEX
        return {"input_ids": ids[:-1], "labels": labels}
