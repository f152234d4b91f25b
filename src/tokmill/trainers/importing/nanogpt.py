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

_LOOKED_AT = 1 << 16
_TELLING = 64


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
        if kind.itemsize == 2:
            _check_not_wide(places[0][0])
        return [TokenFile(one, name, kind, whole_tokens(one, kind)) for one, name in places]

    def read(self, file: TokenFile, eos_id: int) -> Iterator[Block]:
        """Yield the documents, which end with eos; see `Importer.read`."""
        for tokens in read_array(file.path, file.dtype, file.n_tokens):
            yield Block(tokens, np.flatnonzero(tokens == eos_id) + 1)


def _check_not_wide(path: Path) -> None:
    """Check that a stream read as uint16 is not one of uint32; raises `UsageError`.

    The upper halves of ids below 2^18 are 0 to 3, which no text has as every second id.
    """
    first = next(read_array(path, np.dtype("<u2"), min(_LOOKED_AT, path.stat().st_size // 2)), None)
    if first is not None and len(first) >= _TELLING and first[1::2].max() < 4 <= first[::2].max():
        raise UsageError(
            f"{path}: every second id is below 4, as in a file of uint32: --dtype uint32 reads it"
        )


IMPORTER = NanoGpt()
