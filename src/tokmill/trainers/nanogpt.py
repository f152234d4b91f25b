"""nanoGPT: one `train.bin` and one `val.bin` of uint16 ids, end to end, without header.

Source of the layout: nanoGPT, data/openwebtext/prepare.py and the function get_batch of train.py.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from tokmill.errors import UsageError, VerifyError
from tokmill.trainers.trainer import Checked, Layout, Linked, Written
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from pathlib import Path

    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.source import ExportSource


class NanoGpt:
    """nanoGPT and the many trainers that read its files."""

    title = "nanoGPT"
    kinds = frozenset({"pretrain"})
    options: frozenset[str] = frozenset()
    reader: tuple[str, ...] = ()

    def layout(self, source: ExportSource, options: ExportOptions, output: Path) -> Layout:
        """Return one file for each split; see `Trainer.layout`."""
        if source.dtype.itemsize != 2:
            raise UsageError(
                f"{source.directory}: nanoGPT reads uint16, and this dataset has ids above 65,535"
            )
        files = [_file(source, split) for split in source.splits]
        usage = f"dataset = {str(output)!r}\nvocab_size = {source.vocab_size}"
        return Layout(files, usage)

    def check(self, source: ExportSource, options: ExportOptions, output: Path) -> Checked:
        """Compare every token, read as nanoGPT's get_batch reads; see `Trainer.check`."""
        n_tokens = 0
        for split in source.splits:
            found = np.memmap(output / f"{split}.bin", dtype=np.uint16, mode="r")
            start = 0
            for shard in source.shards(split):
                if not np.array_equal(found[start : start + len(shard.tokens)], shard.tokens):
                    raise VerifyError(f"{output / split}.bin: differs from {shard.name}.bin")
                start += len(shard.tokens)
            if start != len(found):
                raise VerifyError(f"{output / split}.bin: {plural(len(found), 'token')}")
            n_tokens += start
        return Checked(f"numpy {np.__version__}", plural(n_tokens, "token"))


def _file(source: ExportSource, split: str) -> Linked | Written:
    entries = source.entries(split)
    if len(entries) == 1:
        return Linked(f"{split}.bin", source.path(entries[0]["name"], "bin"))
    n_bytes = source.n_tokens(split) * source.dtype.itemsize
    return Written(f"{split}.bin", n_bytes, partial(_write, source, split))


def _write(source: ExportSource, split: str, file: BinaryIO) -> None:
    for shard in source.shards(split):
        file.write(shard.tokens.view(np.uint8).data)


TRAINER = NanoGpt()
