"""Packed rows as shards: the samples of a row end to end, padded to the same length."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.documents import Documents
from tokmill.dataset.layout import SHARD_BYTES, packed_stem
from tokmill.dataset.packs import open_packs
from tokmill.dataset.reader import sidecars_of
from tokmill.dataset.writer import ShardWriter
from tokmill.errors import VerifyError
from tokmill.storage import storage_errors

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from tokmill.dataset.checksum import FileEntry
    from tokmill.dataset.documents import Spans
    from tokmill.dataset.packs import Packs
    from tokmill.dataset.writer import ShardEntry

BLOCK_TOKENS = 1 << 20
"""Tokens of the rows that are read at a time, about."""


class RowReader:
    """Reads rows from the shards of a split.

    `capacity`: tokens of a row. `pad_id`: the id of padding, with mask and weight 0.
    """

    def __init__(
        self,
        documents: Documents,
        packs: Packs,
        capacity: int,
        pad_id: int,
    ) -> None:
        self._documents = documents
        self.packs = packs
        self.capacity = capacity
        self.pad_id = pad_id

    @property
    def block_rows(self) -> int:
        """Return the number of rows to read at a time."""
        return max(1, BLOCK_TOKENS // self.capacity)

    def lengths(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Return the tokens of rows start:stop without padding: (stop - start,)."""
        return np.add.reduceat(self._spans(start, stop).lengths, self._offsets(start, stop)[:-1])

    def _spans(self, start: int, stop: int) -> Spans:
        """Return the samples of rows start:stop, end to end."""
        offsets = self.packs.row_offsets
        return self._documents.spans(self.packs.samples[int(offsets[start]) : int(offsets[stop])])

    def _offsets(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        offsets = self.packs.row_offsets[start : stop + 1]
        return np.asarray(offsets - offsets[0])

    def rows(self, start: int, stop: int) -> dict[str, npt.NDArray[Any]]:
        """Return rows start:stop, `bin` and sidecars: (n_tokens,) each, rows end to end.

        Raises:
            VerifyError: a row is longer than the capacity, or a shard is truncated.
        """
        samples, offsets = self._spans(start, stop), self._offsets(start, stop)
        lengths = np.add.reduceat(samples.lengths, offsets[:-1])
        if lengths.max() > self.capacity:
            raise VerifyError(f"pack index: a row of {lengths.max()} tokens, not {self.capacity}")
        padding_before = np.cumsum(self.capacity - lengths) - (self.capacity - lengths)
        targets = samples.targets + np.repeat(padding_before, np.diff(offsets))
        first, n_tokens = self._documents.shard(0), (stop - start) * self.capacity
        gathered = {
            ending: np.full(n_tokens, self.pad_id if ending == "bin" else 0, body.dtype)
            for ending, body in {"bin": first.tokens, **first.sidecars}.items()
        }
        for i in np.unique(samples.shards).tolist():
            here = samples.shards == i
            spans = (samples.starts[here], targets[here], samples.lengths[here])
            stem = self._documents.directory / self._documents.entries[i]["name"]
            for ending, body in gathered.items():
                self._read(stem.with_suffix(f".{ending}"), spans, body)
        return gathered

    def _read(
        self, path: Path, spans: tuple[npt.NDArray[np.int64], ...], into: npt.NDArray[Any]
    ) -> None:
        """Read spans of a file: first value there, first value in `into`, values; (n,) each.

        A memory map would load up to 2 MiB around every sample, and at last all shards. A file is
        opened for each block, so that any number of shards needs few open files.
        """
        with storage_errors(path), path.open("rb", buffering=0) as file:
            data = into.view(np.uint8).data
            starts, targets, lengths = ((span * into.itemsize).tolist() for span in spans)
            for start, target, length in zip(starts, targets, lengths, strict=True):
                n_read = os.preadv(file.fileno(), [data[target : target + length]], start)
                if n_read != length:
                    raise VerifyError(f"{path}: cut: {n_read} of {length} bytes at {start}")


def open_rows(directory: Path, manifest: dict[str, Any], split: str) -> RowReader:
    """Return the reader of a split's rows; raises like `open_packs`, and when read `open_entry`."""
    return RowReader(
        Documents(directory, manifest, split),
        open_packs(directory, split),
        manifest["packs"][split]["capacity"],
        manifest["tokenizer"]["eos"]["id"],
    )


def write_packed_rows(
    directory: Path, manifest: dict[str, Any], algorithm: str, *, shard_bytes: int = SHARD_BYTES
) -> tuple[list[FileEntry], dict[str, list[dict[str, Any]]]]:
    """Write every packed row of a dataset, padded with eos; each is one document of its `.idx`.

    Memory: some blocks of `BLOCK_TOKENS`. The manifest must have `dtype`, `tokenizer`, `shards`,
    `mask` and `packs`. A `.bin` has at most `shard_bytes`, but at least one row.

    Returns:
        The files written, and the manifest's entries for the shards of every split, in order.

    Raises:
        VerifyError: a shard or the pack index is broken.
        StorageError: the rows cannot be written.
    """
    files: list[FileEntry] = []
    listed: dict[str, list[dict[str, Any]]] = {}
    dtype = np.dtype(manifest["dtype"]).newbyteorder("<")
    for split in manifest["packs"]:
        source = open_rows(directory, manifest, split)
        n_rows = max(1, shard_bytes // (source.capacity * dtype.itemsize))
        for number, start in enumerate(range(0, source.packs.n_rows, n_rows)):
            stem = packed_stem(split, number)
            writer = ShardWriter(
                directory, split, stem, dtype, sidecars_of(manifest), algorithm=algorithm
            )
            entry = _write(writer, source, start, min(start + n_rows, source.packs.n_rows))
            files += entry.files
            listed.setdefault(split, []).append(entry.as_row())
    return files, listed


def _write(writer: ShardWriter, source: RowReader, start: int, stop: int) -> ShardEntry:
    try:
        for first in range(start, stop, source.block_rows):
            last = min(first + source.block_rows, stop)
            bodies = source.rows(first, last)
            lengths = np.full(last - first, source.capacity, np.int64)
            writer.append(bodies.pop("bin"), lengths, bodies)
        return writer.commit()
    except BaseException:
        writer.discard()
        raise
