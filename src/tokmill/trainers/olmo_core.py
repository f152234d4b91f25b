"""OLMo-core: bodies named `.npy`, the spans of their documents as `.csv.gz`, and label masks.

Source of the layout: OLMo-core, olmo_core/data/utils.py and numpy_dataset.py. The `.npy` has no
header: it is the ids end to end. A label mask is one byte a token, 1 = a target.

A `.csv.gz` has a line `start,end` for each document, in tokens, end exclusive. Its text is cut into
chunks of a fixed number of documents, each a gzip member.
"""

from __future__ import annotations

import gzip
import tempfile
from functools import partial
from importlib.metadata import version
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from tokmill.errors import VerifyError
from tokmill.trainers.trainer import Checked, Layout, Linked, Written, padded
from tokmill.words import plural

if TYPE_CHECKING:
    from pathlib import Path

    from tokmill.dataset.reader import Shard
    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.trainer import ExportSource

CHUNK_DOCUMENTS = 1 << 16
"""Documents of a gzip member."""

_LEVEL = 1  # of compression; higher ones take several times as long
_MEMBER_BYTES = 64
"""More than the header and the end of a member need."""

ROW = 1024
"""Tokens of the rows that are compared."""

PADDED_TO = 128
"""Default of OLMo-core's `TokenizerConfig.padded_vocab_size`."""


class OlmoCore:
    """OLMo-core's numpy datasets."""

    title = "OLMo-core"
    kinds = frozenset({"pretrain", "sft"})
    options: frozenset[str] = frozenset()
    reader = ("ai2-olmo-core", "torch")

    def layout(self, source: ExportSource, options: ExportOptions, output: Path) -> Layout:
        """Return two files for each shard, three for chats; see `Trainer.layout`."""
        files: list[Linked | Written] = []
        for split in source.splits:
            for index, entry in enumerate(source.entries(split)):
                name = entry.name
                files += [
                    Linked(f"{split}/{name}.npy", source.path(name, "bin")),
                    Written(
                        f"{split}/{name}.csv.gz",
                        _most_bytes(entry.documents, entry.tokens),
                        partial(_write_spans, source, split, index),
                    ),
                ]
                if source.kind == "sft":
                    files.append(Linked(f"{split}-mask/{name}.npy", source.path(name, "mask")))
        return Layout(files, _usage(source, output.absolute()), source.alignment, _notes(source))

    def check(self, source: ExportSource, options: ExportOptions, output: Path) -> Checked:
        """Compare every document and row, read with OLMo-core; see `Trainer.check`."""
        import olmo_core.data.utils

        data: Any = olmo_core.data
        by_eos = _ends_at_eos(source)
        n_documents = n_rows = left_out = 0
        for split in source.splits:
            folder = output.absolute() / split
            for shard in source.shards(split):
                path = folder / f"{shard.name}.npy"
                _compare_documents(data, path, shard, source, by_eos=by_eos)
                n_documents += len(shard.lengths)
            rows = _compare_rows(data, source, output.absolute(), split)
            n_rows += rows
            left_out += source.n_tokens(split) - rows * ROW
        how = "documents found by .csv.gz and by eos" if by_eos else "documents found by .csv.gz"
        masks = " with label masks" if source.kind == "sft" else ""
        return Checked(
            f"ai2-olmo-core {version('ai2-olmo-core')}",
            f"{plural(n_documents, 'document')} ({how}), {plural(n_rows, 'row')} of {ROW:,} tokens"
            f"{masks}",
            left_out,
        )


def _most_bytes(n_documents: int, n_tokens: int) -> int:
    """Return a bound of the size of a `.csv.gz`; a character takes half a byte."""
    n_members = -(-n_documents // CHUNK_DOCUMENTS)
    return n_documents * (len(str(n_tokens)) + 1) + n_members * _MEMBER_BYTES


def _write_spans(source: ExportSource, split: str, index: int, file: BinaryIO) -> None:
    import pyarrow as pa
    from pyarrow import csv

    shard = source.documents(split).shard(index)
    for start in range(0, len(shard.lengths), CHUNK_DOCUMENTS):
        some = slice(start, start + CHUNK_DOCUMENTS)
        starts = shard.offsets[some] // shard.tokens.itemsize
        rows = pa.table({"start": starts, "end": starts + shard.lengths[some]})
        text = pa.BufferOutputStream()
        csv.write_csv(rows, text, csv.WriteOptions(include_header=False))
        file.write(gzip.compress(text.getvalue(), _LEVEL, mtime=0))


def _usage(source: ExportSource, place: Path) -> str:
    """Return Python that builds the config of the train split."""
    tokenizer = source.manifest.tokenizer
    bos = "" if tokenizer.bos is None else f" bos_token_id={tokenizer.bos.id},"
    is_sft = source.kind == "sft"
    config = "NumpyPackedFSLDatasetConfig" if is_sft else "NumpyFSLDatasetConfig"
    split = source.splits[0]
    lines = [
        f"from olmo_core.data import NumpyDatasetDType, {config}, TokenizerConfig",
        "",
        "tokenizer = TokenizerConfig(",
        f"    vocab_size={source.vocab_size}, eos_token_id={source.eos_id},{bos}",
        f"    pad_token_id={source.eos_id}, identifier={tokenizer.name!r},",
        ")",
        f"config = {config}(",
        f"    paths={_paths(source, split, place / split)}, expand_glob={'*' not in str(place)},",
        f"    dtype=NumpyDatasetDType.{source.dtype.name},",
        "    tokenizer=tokenizer,",
        "    sequence_length=4096,",
        '    work_dir="dataset-cache",',
    ]
    if is_sft:
        lines += [
            f"    label_mask_paths={_paths(source, split, place / f'{split}-mask')},",
            "    generate_doc_lengths=True,",
            "    use_array_if_local=False,",
        ]
    rows = padded(source.vocab_size, PADDED_TO)
    return "\n".join(
        [*lines, ")", f"vocab_size = tokenizer.padded_vocab_size()  # of the model: {rows}"]
    )


def _paths(source: ExportSource, split: str, folder: Path) -> list[str]:
    """Return a pattern of the files of a folder, or all of them: `*` cannot be escaped."""
    if "*" in str(folder):
        return [f"{folder}/{entry.name}.npy" for entry in source.entries(split)]
    return [f"{folder}/*.npy"]


def _notes(source: ExportSource) -> list[str]:
    notes = [
        f"always pass the dtype, {source.dtype.name}: without it OLMo-core takes the smallest that "
        "holds the vocabulary",
        "rows hold sequence_length tokens, and the rest of each file is left out: --check counts "
        "it for 1,024",
    ]
    if not _ends_at_eos(source):
        notes.append(
            "documents may have eos inside, or none at their end: OLMo-core looks for eos to find "
            "documents in local files, and would find others; use_array_if_local=False, or "
            "OLMO_DATA_PREP_USE_ARRAY_IF_LOCAL=0 in the environment, makes it read .csv.gz"
        )
        if source.kind == "pretrain":
            notes.append("generate_doc_lengths=True of NumpyFSLDatasetConfig always looks for eos")
    if source.kind == "sft":
        notes.append("sequence_length of packed rows is a power of two; longer samples are cut")
    return notes


def _ends_at_eos(source: ExportSource) -> bool:
    """Return whether eos stands at the end of every document, and nowhere else.

    In a dataset for pretraining each document ends with eos, and has none inside if control tokens
    in text are ordinary text.
    """
    in_text = source.manifest.config.tokenizer.control_tokens_in_text
    is_text = in_text in ("text", "reject")
    return source.kind == "pretrain" and is_text


def _compare_documents(
    data: Any, path: Path, shard: Shard, source: ExportSource, *, by_eos: bool
) -> None:
    """Compare every document, found by `.csv.gz` and, if that is possible, by eos."""
    dtype = np.dtype(source.dtype.name).type
    bos = source.manifest.tokenizer.bos
    find = data.utils.iter_document_indices
    ways = [("csv.gz", find(str(path), use_array_if_local=False, dtype=dtype))]
    if by_eos:
        ids = {"eos_token_id": source.eos_id, "bos_token_id": None if bos is None else bos.id}
        ways.append(("eos", find(str(path), dtype=dtype, use_array_if_local=True, **ids)))
    for name, spans in ways:
        for number, span in enumerate(
            zip_longest(spans, map(shard.span, range(len(shard.lengths))))
        ):
            found, expected = span
            if found is None or expected is None or tuple(found) != (expected.start, expected.stop):
                raise VerifyError(f"{path}: document {number} is {found} by {name}")
            if name == "csv.gz":
                tokens = data.utils.load_array_slice(str(path), *map(int, found), dtype)
                if not np.array_equal(tokens, shard.tokens[expected]):
                    raise VerifyError(f"{path}: document {number} differs")


def _compare_rows(data: Any, source: ExportSource, output: Path, split: str) -> int:
    """Compare all rows of a split, and return their number."""
    names = [entry.name for entry in source.entries(split)]
    masks = [str(output / f"{split}-mask" / f"{name}.npy") for name in names]
    with tempfile.TemporaryDirectory() as work_dir:
        theirs = data.NumpyFSLDatasetConfig(
            paths=[str(output / split / f"{name}.npy") for name in names],
            label_mask_paths=masks if source.kind == "sft" else None,
            sequence_length=ROW,
            tokenizer=data.TokenizerConfig(
                vocab_size=source.vocab_size,
                eos_token_id=source.eos_id,
                pad_token_id=source.eos_id,
            ),
            dtype=data.NumpyDatasetDType(source.dtype.name),
            include_instance_metadata=False,
            work_dir=work_dir,
        ).build()
        theirs.prepare()
        number = 0
        for shard in source.shards(split):
            bodies: dict[str, Any] = {"input_ids": shard.tokens}
            bodies |= {} if shard.mask is None else {"label_mask": shard.mask}
            for start in range(0, len(shard.tokens) - ROW + 1, ROW):
                row, number = theirs[number], number + 1
                for key, body in bodies.items():
                    if not np.array_equal(row[key].numpy(), body[start : start + ROW]):
                        where = f"{shard.name}.npy: {key} of the row at token {start}"
                        raise VerifyError(f"{where} differ")
        if len(theirs) != number:
            raise VerifyError(f"{output / split}: {plural(len(theirs), 'row')}, expected {number}")
    return number


TRAINER = OlmoCore()
