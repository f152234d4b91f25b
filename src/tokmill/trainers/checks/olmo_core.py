"""An export to OLMo-core, read with its own readers and compared with its dataset."""

from __future__ import annotations

import tempfile
import warnings
from importlib.metadata import version
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.errors import UsageError, VerifyError
from tokmill.trainers.layouts.document_ends import count_eos
from tokmill.trainers.trainer import Checked
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from pathlib import Path

    from tokmill.dataset.reader import Shard
    from tokmill.trainers.source import ExportSource

ROW = 1024
"""Tokens of the rows that are compared."""


def check(source: ExportSource, output: Path) -> Checked:
    """Compare the spans and tokens of every document, and every row with its label mask.

    Raises:
        UsageError: OLMo-core is installed but cannot be imported.
        VerifyError: something differs.
    """
    data = _olmo_core_data()
    by_eos = count_eos(source) == (0, 0)
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


def _olmo_core_data() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of packages that it can do without
            import olmo_core.data.utils
    except Exception as error:  # it imports what is installed, such as a torchao of another torch
        raise UsageError(
            f"--check: ai2-olmo-core cannot be imported: {type(error).__name__}: {error}: "
            "install what is missing, or remove what does not go with this torch, such as torchao"
        ) from None
    return olmo_core.data


def _compare_documents(
    data: Any, path: Path, shard: Shard, source: ExportSource, *, by_eos: bool
) -> None:
    """Compare every document, found by `.csv.gz` and, if that is possible, by eos."""
    dtype = np.dtype(source.dtype.name).type
    bos = source.manifest["tokenizer"]["bos"]
    find = data.utils.iter_document_indices
    ways = [("csv.gz", find(str(path), use_array_if_local=False, dtype=dtype))]
    if by_eos:
        ids = {"eos_token_id": source.eos_id, "bos_token_id": None if bos is None else bos["id"]}
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
    names = [entry["name"] for entry in source.entries(split)]
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
            for start in range(0, len(shard.tokens) - ROW + 1, ROW):
                _compare_row(theirs[number], shard, start)
                number += 1
        if len(theirs) != number:
            raise VerifyError(f"{output / split}: {plural(len(theirs), 'row')}, expected {number}")
    return number


def _compare_row(row: Any, shard: Shard, start: int) -> None:
    bodies: list[tuple[str, Any]] = [("input_ids", shard.tokens), ("label_mask", shard.mask)]
    for key, body in bodies:
        if body is None:
            continue
        if not np.array_equal(row[key].numpy(), body[start : start + ROW]):
            raise VerifyError(f"{shard.name}.npy: {key} of the row at token {start} differ")
