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
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from tokmill.dataset.identity import identity_of
from tokmill.errors import UsageError, VerifyError
from tokmill.trainers.trainer import Checked, Layout, Written
from tokmill.words import plural

if TYPE_CHECKING:
    from pathlib import Path

    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.trainer import ExportSource

HEADER = struct.Struct("<3I")
_DTYPE_CODES = {2: 5, 4: 6}
"""Bytes per token to litdata's number of the dtype."""

_MOST_BYTES = (1 << 32) - 1
"""Offsets in a chunk are u32."""

_DATA_SPEC = '[1, {"type": null, "context": null, "children_spec": []}]'
"""Says that an item is one array; written by optree as text."""


class LitData:
    """litdata's StreamingDataset with TokensLoader."""

    title = "litdata"
    kinds = frozenset({"pretrain"})
    options = frozenset({"file_tokens", "block_tokens"})
    reader: tuple[str, ...] = ("litdata",)

    def layout(self, source: ExportSource, options: ExportOptions, output: Path) -> Layout:
        """Return the chunks of each split, and their index; see `Trainer.layout`."""
        files: list[Written] = []
        notes = []
        for split in source.splits:
            rows = []
            for number, span in enumerate(_spans(source, split, options)):
                name = f"chunk-0-{number}.bin"
                n_bytes = HEADER.size + len(span) * source.dtype.itemsize
                write = partial(_write_chunk, source, split, span)
                files.append(Written(f"{split}/{name}", n_bytes, write))
                rows.append(
                    {"chunk_bytes": n_bytes, "chunk_size": 1, "dim": len(span), "filename": name}
                )
            files.append(Written.of(f"{split}/index.json", _index(source, rows)))
            notes += _left_out(source, split, options.block_tokens)
        usage = self._usage(source, options, output.absolute())
        return Layout(files, usage, notes=[*notes, *self._notes(source)])

    def check(self, source: ExportSource, options: ExportOptions, output: Path) -> Checked:
        """Compare every block that TokensLoader returns; see `Trainer.check`."""
        left_out = n_blocks = 0
        for split in source.splits:
            found = _check_split(source, split, output / split, options.block_tokens)
            n_blocks += found
            left_out += source.n_tokens(split) - found * options.block_tokens
        return Checked(
            f"litdata {importlib.metadata.version('litdata')}",
            f"{plural(n_blocks, 'block')} of {plural(options.block_tokens, 'token')}",
            left_out,
        )

    def _usage(self, source: ExportSource, options: ExportOptions, place: Path) -> str:
        return (
            "from litdata.streaming import StreamingDataset, TokensLoader\n"
            "\n"
            f"loader = TokensLoader(block_size={options.block_tokens})\n"
            f"train = StreamingDataset({str(place / 'train')!r}, item_loader=loader, shuffle=True)"
        )

    def _notes(self, source: ExportSource) -> list[str]:
        return []


class LitGpt(LitData):
    """litgpt's data module LitData, which reads the same files."""

    title = "litgpt"

    def _usage(self, source: ExportSource, options: ExportOptions, place: Path) -> str:
        has_val = "val" in source.splits
        data = place if has_val else place / "train"
        usage = f"litgpt pretrain MODEL --data LitData --data.data_path {shlex.quote(str(data))}"
        if has_val:
            usage += """ --data.split_names '["train", "val"]'"""
        return f"{usage} --train.max_seq_length {options.block_tokens - 1}"

    def _notes(self, source: ExportSource) -> list[str]:
        notes = [f"the model needs padded_vocab_size of at least {source.vocab_size:,}"]
        if "val" not in source.splits:
            notes.append("no val split: litgpt validates on train")
        return notes


def _left_out(source: ExportSource, split: str, block: int) -> list[str]:
    """Return a note if the reader leaves tokens of a split out."""
    n_tokens = source.n_tokens(split)
    if n_tokens < block:
        return [
            f"{split}: {plural(n_tokens, 'token')}, less than a block of {block:,}: the reader "
            "returns nothing"
        ]
    if left := n_tokens % block:
        return [
            f"{split}: the reader never returns the last {plural(left, 'token')}, an incomplete "
            f"block of {block:,}; with another block_size it leaves out the remainder of every "
            "chunk"
        ]
    return []


def _spans(source: ExportSource, split: str, options: ExportOptions) -> list[range]:
    """Return the spans of the split's stream that are chunks."""
    block = options.block_tokens
    limit = (_MOST_BYTES - HEADER.size) // source.dtype.itemsize
    most = min(max(options.file_tokens, block), limit) // block * block
    if not most:
        raise UsageError(f"--block-tokens {block:,}: expected at most {limit:,}, a whole chunk")
    total = source.n_tokens(split)
    return [range(start, min(start + most, total)) for start in range(0, total, most)]


def _index(source: ExportSource, rows: list[dict[str, Any]]) -> bytes:
    config = {
        "chunk_bytes": max(row["chunk_bytes"] for row in rows),
        "chunk_size": None,
        "compression": None,
        "data_format": [f"no_header_numpy:{_DTYPE_CODES[source.dtype.itemsize]}"],
        "data_spec": _DATA_SPEC,
        "encryption": None,
        "item_loader": "TokensLoader",
    }
    index: dict[str, Any] = {"chunks": rows, "config": config}
    # litdata caches remote chunks under this name: it changes with the content, and with it only
    content = json.dumps([identity_of(source.manifest, source.directory), rows]).encode()
    index["updated_at"] = hashlib.sha256(content).hexdigest()[:16]
    return json.dumps(index, sort_keys=True).encode()


def _write_chunk(source: ExportSource, split: str, span: range, file: BinaryIO) -> None:
    file.write(HEADER.pack(1, HEADER.size, HEADER.size + len(span) * source.dtype.itemsize))
    source.copy_tokens(split, span.start, span.stop, file)


def _check_split(source: ExportSource, split: str, folder: Path, block: int) -> int:
    """Compare the blocks of a split in their order; return their number."""
    from litdata.streaming import StreamingDataset, TokensLoader

    expected = source.n_tokens(split) // block
    if not expected:
        return 0
    dataset = StreamingDataset(str(folder), item_loader=TokensLoader(block), shuffle=False)
    n_blocks, at_once, blocks = 0, max(1, (1 << 20) // block), iter(dataset)
    while n_blocks < expected:
        if not (tokens := [np.asarray(one) for one in islice(blocks, at_once)]):
            break
        source.check_tokens(split, n_blocks * block, np.concatenate(tokens), folder)
        n_blocks += len(tokens)
    if not len(dataset) == n_blocks == expected:
        raise VerifyError(f"{folder}: {plural(n_blocks, 'block')} read, expected {expected:,}")
    return n_blocks


LITDATA = LitData()
LITGPT = LitGpt()
