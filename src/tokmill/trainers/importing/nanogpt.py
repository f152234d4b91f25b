"""nanoGPT's `train.bin` and `val.bin`: ids without header; eos ends the documents.

The stream has no other boundaries: an eos inside a document divides it, and documents that were
written without eos are one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tokmill.errors import UsageError
from tokmill.trainers.importing.blocks import Block, TokenFile, read_array, whole_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator


class NanoGpt:
    """Reads the files of nanoGPT, and of others that write ids end to end."""

    title = "nanoGPT"

    def find(self, path: Path, split: str, dtype: str) -> list[TokenFile]:
        """Return a file, or `train.bin` and `val.bin` of a directory; see `Importer.find`."""
        places = [(path, split)]
        if path.is_dir():
            splits = ("train", "val") if split == "train" else ("val",)
            places = [(path / f"{one}.bin", one) for one in splits]
            places = [(one, name) for one, name in places if one.is_file()]
        if not places or not places[0][0].is_file():
            raise UsageError(f"{path}: expected a .bin file, or a directory with train.bin")
        kind = np.dtype("<u4") if dtype == "uint32" else np.dtype("<u2")
        return [TokenFile(one, name, kind, whole_tokens(one, kind)) for one, name in places]

    def read(self, file: TokenFile, eos_id: int) -> Iterator[Block]:
        """Yield the documents, which end with eos; see `Importer.read`."""
        for tokens in read_array(file.path, file.dtype, file.n_tokens):
            yield Block(tokens, np.flatnonzero(tokens == eos_id) + 1)


IMPORTER = NanoGpt()
