"""datatrove's and nanotron's `X.ds` with `X.ds.index`, and `X.ds.loss` where samples have a mask.

See `trainers/datatrove.py` for the bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tokmill.errors import UsageError, VerifyError
from tokmill.trainers.importing.blocks import (
    TokenFile,
    files_below,
    joined,
    read_array,
    read_mask,
    whole_tokens,
)
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tokmill.trainers.importing.blocks import Block

_END = np.dtype("<u8")
_BY_SIZE = {2: "<u2", 4: "<u4"}


class Datatrove:
    """Reads the files of datatrove and nanotron."""

    title = "datatrove"

    def find(self, path: Path, split: str, dtype: str) -> list[TokenFile]:
        """Return the `.ds` files of a path; see `Importer.find`."""
        if dtype:
            raise UsageError("--dtype: the .index of datatrove tells it: leave it out")
        return [_file(one, split) for one in files_below(path, "*.ds", "X.ds files")]

    def read(self, file: TokenFile, eos_id: int) -> Iterator[Block]:
        """Yield the documents, and their masks; see `Importer.read`."""
        del eos_id
        masks = None if file.mask is None else read_mask(file.mask, file.n_tokens)
        tokens = read_array(file.path, file.dtype, file.n_tokens)
        return joined(tokens, _ends(file.index or file.path), masks)


def _file(path: Path, split: str) -> TokenFile:
    index, loss = path.with_name(f"{path.name}.index"), path.with_name(f"{path.name}.loss")
    if not index.is_file():
        raise UsageError(f"{index}: missing: without it, the ends of documents are unknown")
    if index.stat().st_size % _END.itemsize:
        raise VerifyError(
            f"{index}: {plural(index.stat().st_size, 'byte')} are no whole number of 8-byte ends "
            "of documents: it is damaged"
        )
    n_ends = whole_tokens(index, _END)
    with index.open("rb") as file:
        file.seek(-_END.itemsize if n_ends else 0, 2)
        n_tokens = int.from_bytes(file.read(), "little")
    n_bytes = path.stat().st_size
    item_bytes = n_bytes // n_tokens if n_tokens else 2
    if item_bytes not in _BY_SIZE or item_bytes * n_tokens != n_bytes:
        raise VerifyError(
            f"{path}: {plural(n_bytes, 'byte')} for the {plural(n_tokens, 'token')} of its index, "
            "expected 2 or 4 each"
        )
    dtype = np.dtype(_BY_SIZE[item_bytes])
    if loss.is_file() and loss.stat().st_size != n_tokens:
        raise VerifyError(f"{loss}: {plural(loss.stat().st_size, 'byte')}, expected {n_tokens:,}")
    return TokenFile(path, split, dtype, n_tokens, index, loss if loss.is_file() else None)


def _ends(index: Path) -> Iterator[npt.NDArray[np.int64]]:
    last = 0
    for ends in read_array(index, _END, whole_tokens(index, _END)):
        found = ends.astype(np.int64)
        if int(np.diff(found, prepend=last).min()) < 0:
            raise VerifyError(f"{index}: the ends of documents do not rise")
        last = int(found[-1])
        yield found


IMPORTER = Datatrove()
