"""Tokens of other trainers, written by hand from the specification of each layout."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokmill
from tokmill.api.dataset import Dataset
from tokmill.sources import token_files

EOS = 0
"""Of the tiny tokenizer, which has 291 ids."""

CODES = {"u1": 1, "i1": 2, "<i2": 3, "<i4": 4, "<i8": 5, "<f4": 7, "<u2": 8}


@pytest.fixture(params=[1 << 20, 3])
def block_tokens(request, monkeypatch) -> int:
    """Read so many tokens at once: all, or few, so that documents cross blocks."""
    monkeypatch.setattr(token_files, "BLOCK_TOKENS", request.param)
    return request.param


@pytest.fixture
def bring(tokenizer_dir: Path, tmp_path: Path) -> Callable[..., Dataset]:
    """Import into `tmp_path / out`; the result must pass `verify`.

    The tokenizer is the tiny one, or that of the dataset `like`.
    """

    def bring(sources: Any, trainer: str, like: Dataset | None = None, **options: Any) -> Dataset:
        output = tmp_path / options.pop("output", "out")
        tokenizer = tokenizer_dir if like is None else like.manifest["tokenizer"]["name"]
        made = tokmill.import_dataset(
            sources, trainer=trainer, output=output, tokenizer=tokenizer, **options
        )
        made.verify()
        return made

    return bring


def write_megatron(
    prefix: Path,
    sequences: Sequence[Sequence[int]],
    documents: Sequence[int] | None = None,
    dtype: str = "<u2",
    *,
    order: Sequence[int] | None = None,
    header_bytes: int = 0,
) -> Path:
    """Write a pair; `documents`: first sequence of each. `order`: of the sequences in `.bin`."""
    pointers = np.zeros(len(sequences), "<i8")
    with Path(f"{prefix}.bin").open("wb") as file:
        file.write(bytes(header_bytes))
        for i in order if order is not None else range(len(sequences)):
            pointers[i] = file.tell()
            file.write(np.array(sequences[i], dtype).tobytes())
    firsts = list(range(len(sequences))) if documents is None else list(documents)
    index = np.array([*firsts, len(sequences)], "<i8")
    head = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, CODES[dtype], len(sequences), len(index))
    lengths = np.array([len(one) for one in sequences], "<i4")
    Path(f"{prefix}.idx").write_bytes(
        head + lengths.tobytes() + pointers.tobytes() + index.tobytes()
    )
    return prefix


def write_datatrove(
    path: Path,
    documents: Sequence[Sequence[int]],
    masks: Sequence[Sequence[int]] | None = None,
    dtype: str = "<u2",
) -> Path:
    """Write `path`, its `.index` and, with masks, its `.loss`."""
    path.write_bytes(b"".join(np.array(one, dtype).tobytes() for one in documents))
    ends = np.cumsum([len(one) for one in documents], dtype="<u8")
    Path(f"{path}.index").write_bytes(ends.tobytes())
    if masks is not None:
        Path(f"{path}.loss").write_bytes(bytes(flag for mask in masks for flag in mask))
    return path


def ids(dataset: Dataset) -> list[list[int]]:
    """Return all documents."""
    return [dataset[i].tolist() for i in range(len(dataset))]


def files_of(directory: Path) -> dict[str, bytes]:
    """Return all files of an import that its input decides."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name not in ("manifest.json", ".lock")
    }
