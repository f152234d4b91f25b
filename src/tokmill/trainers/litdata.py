"""litdata and litgpt: chunks of one item, the tokens, and `index.json`; a folder for each split.

| bytes of a chunk | value                                                        |
|------------------|--------------------------------------------------------------|
| 0 to 3           | u32: 1, the number of items                                  |
| 4 to 7           | u32: 12, where the item begins                               |
| 8 to 11          | u32: where it ends, the size of the file                     |
| 12 on            | the tokens                                                   |

Little-endian. The reader (TokensLoader) cuts blocks of `block_size` tokens from each chunk, and
leaves out the remainder. So chunks end at a multiple of the block, and only the last block of a
split can be incomplete. Source of the layout: litdata, streaming/writer.py and item_loader.py.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import shlex
import struct
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from tokmill.errors import UsageError, VerifyError
from tokmill.trainers.layouts.streams import check_tokens, copy_tokens
from tokmill.trainers.trainer import Checked, Layout, Written
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from pathlib import Path

    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.source import ExportSource

HEADER = struct.Struct("<3I")
_DTYPE_CODES = {2: 5, 4: 6}
"""Bytes per token to litdata's number of the dtype."""

_MOST_BYTES = (1 << 32) - 1
"""Offsets in a chunk are u32."""

_DATA_SPEC = '[1, {"type": null, "context": null, "children_spec": []}]'
"""Says that an item is one array; written by optree as text."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk: the span `start, stop` of the split's stream."""

    name: str
    start: int
    stop: int


class LitData:
    """litdata's StreamingDataset with TokensLoader."""

    title = "litdata"
    kinds = frozenset({"pretrain"})
    options = frozenset({"file_tokens", "block_tokens"})
    reader: tuple[str, ...] = ("litdata",)

    def layout(self, source: ExportSource, options: ExportOptions, output: Path) -> Layout:
        """Return the chunks of each split, and their index; see `Trainer.layout`."""
        usage = (
            "from litdata.streaming import StreamingDataset, TokensLoader\n"
            "\n"
            f"loader = TokensLoader(block_size={options.block_tokens})\n"
            f"train = StreamingDataset({str(output.absolute() / 'train')!r}, item_loader=loader, "
            "shuffle=True)"
        )
        return _layout(source, options, usage)

    def check(self, source: ExportSource, options: ExportOptions, output: Path) -> Checked:
        """Compare every block that TokensLoader returns; see `Trainer.check`."""
        left_out = n_blocks = 0
        for split in source.splits:
            found = _check_split(source, split, output / split, options.block_tokens)
            n_blocks += found
            left_out += source.n_tokens(split) - found * options.block_tokens
        return Checked(
            f"litdata {importlib.metadata.version('litdata')}",
            f"{plural(n_blocks, 'block')} of {options.block_tokens:,} tokens",
            left_out,
        )


class LitGpt(LitData):
    """litgpt's data module LitData, which reads the same files."""

    title = "litgpt"

    def layout(self, source: ExportSource, options: ExportOptions, output: Path) -> Layout:
        """Return the chunks of each split, and their index; see `Trainer.layout`."""
        path = output.absolute()
        has_val = "val" in source.splits
        data = path if has_val else path / "train"
        usage = f"litgpt pretrain MODEL --data LitData --data.data_path {shlex.quote(str(data))}"
        if has_val:
            usage += """ --data.split_names '["train", "val"]'"""
        usage += f" --train.max_seq_length {options.block_tokens - 1}"
        layout = _layout(source, options, usage)
        notes = [
            *layout.notes,
            f"the model needs padded_vocab_size of at least {source.vocab_size:,}",
        ]
        if not has_val:
            notes.append("no val split: litgpt validates on train")
        return Layout(layout.files, usage, notes=notes)


def _layout(source: ExportSource, options: ExportOptions, usage: str) -> Layout:
    files: list[Written] = []
    notes = []
    for split in source.splits:
        chunks = _chunks(source, split, options)
        index = _index(source, chunks)
        item_bytes = source.dtype.itemsize
        for chunk in chunks:
            n_bytes = HEADER.size + (chunk.stop - chunk.start) * item_bytes
            write = partial(_write_chunk, source, split, chunk)
            files.append(Written(f"{split}/{chunk.name}", n_bytes, write))
        files.append(Written.of(f"{split}/index.json", index))
        if source.n_tokens(split) < options.block_tokens:
            notes.append(
                f"{split}: {plural(source.n_tokens(split), 'token')}, less than a block of "
                f"{options.block_tokens:,}: the reader returns nothing"
            )
        elif left := source.n_tokens(split) % options.block_tokens:
            notes.append(
                f"{split}: the reader never returns the last {plural(left, 'token')}, an "
                f"incomplete block of {options.block_tokens:,}; with another block_size it leaves "
                "out the remainder of every chunk"
            )
    return Layout(files, usage, notes=notes)


def _chunks(source: ExportSource, split: str, options: ExportOptions) -> list[Chunk]:
    block = options.block_tokens
    limit = (_MOST_BYTES - HEADER.size) // source.dtype.itemsize
    most = min(max(options.file_tokens, block), limit) // block * block
    if not most:
        raise UsageError(f"--block-tokens {block:,}: expected at most {limit:,}, a whole chunk")
    total = source.n_tokens(split)
    starts = range(0, total, most)
    return [
        Chunk(f"chunk-0-{number}.bin", start, min(start + most, total))
        for number, start in enumerate(starts)
    ]


def _index(source: ExportSource, chunks: list[Chunk]) -> bytes:
    item_bytes = source.dtype.itemsize
    rows: list[dict[str, Any]] = [
        {
            "chunk_bytes": HEADER.size + (chunk.stop - chunk.start) * item_bytes,
            "chunk_size": 1,
            "dim": chunk.stop - chunk.start,
            "filename": chunk.name,
        }
        for chunk in chunks
    ]
    config = {
        "chunk_bytes": max(row["chunk_bytes"] for row in rows),
        "chunk_size": None,
        "compression": None,
        "data_format": [f"no_header_numpy:{_DTYPE_CODES[item_bytes]}"],
        "data_spec": _DATA_SPEC,
        "encryption": None,
        "item_loader": "TokensLoader",
    }
    index: dict[str, Any] = {"chunks": rows, "config": config}
    # litdata caches remote chunks under this name: it changes with the content, and with it only
    content = json.dumps([source.manifest["sha256"], rows]).encode()
    index["updated_at"] = hashlib.sha256(content).hexdigest()[:16]
    return json.dumps(index, sort_keys=True).encode()


def _write_chunk(source: ExportSource, split: str, chunk: Chunk, file: BinaryIO) -> None:
    n_bytes = (chunk.stop - chunk.start) * source.dtype.itemsize
    file.write(HEADER.pack(1, HEADER.size, HEADER.size + n_bytes))
    copy_tokens(source, split, chunk.start, chunk.stop, file)


def _check_split(source: ExportSource, split: str, folder: Path, block: int) -> int:
    """Compare the blocks of a split in their order; return their number."""
    from litdata.streaming import StreamingDataset, TokensLoader

    expected = source.n_tokens(split) // block
    if not expected:
        return 0
    dataset = StreamingDataset(str(folder), item_loader=TokensLoader(block), shuffle=False)
    if len(dataset) != expected:
        raise VerifyError(f"{folder}: {plural(len(dataset), 'block')}, expected {expected:,}")
    n_blocks = 0
    buffer = np.empty((max(1, (1 << 20) // block), block), source.dtype)
    for i, tokens in enumerate(dataset):
        row = i % len(buffer)
        buffer[row] = np.asarray(tokens)
        n_blocks = i + 1
        if row == len(buffer) - 1 or n_blocks == expected:
            first = (n_blocks - row - 1) * block
            check_tokens(source, split, first, buffer[: row + 1].reshape(-1), folder)
    if n_blocks != expected:
        raise VerifyError(f"{folder}: {plural(n_blocks, 'block')} read, expected {expected:,}")
    return n_blocks


LITDATA = LitData()
LITGPT = LitGpt()
