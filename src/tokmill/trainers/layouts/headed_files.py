"""Files of a 1,024-byte header and tokens, as llm.c and modded-nanogpt read them.

| bytes        | value                                                               |
|--------------|---------------------------------------------------------------------|
| 0 to 3       | int32: 20240520 for uint16 tokens, 20240801 (Llama 3) for uint32    |
| 4 to 7       | int32: version, 1 for uint16, 7 for uint32                          |
| 8 to 11      | int32: N, the number of tokens                                      |
| 12 to 1,023  | 0                                                                   |
| 1,024 on     | N tokens                                                            |

Little-endian. Both trainers expect eos before every document: a file begins with eos, and the eos
behind its last document is left out, so N is unchanged. Sources of the layout: llm.c,
dev/data/data_common.py and llmc/dataloader.h; modded-nanogpt, train_gpt.py.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from tokmill.errors import UsageError, VerifyError
from tokmill.trainers.layouts.streams import (
    check_last_tokens,
    check_tokens,
    copy_tokens,
    cut_at_documents,
    read_tokens,
)
from tokmill.trainers.trainer import Checked, Written
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.source import ExportSource

HEADER_BYTES = 1024
VARIANTS = {2: (20240520, 1), 4: (20240801, 7)}
"""Bytes per token to the magic number and the version of the header."""

_MOST_BYTES = (1 << 31) - 1
"""llm.c seeks with an int: a longer file fails in the middle of training."""


@dataclass(frozen=True, slots=True)
class HeadedFile:
    """One file: the span `start, stop` of the split's stream; `rotated`: eos stands first."""

    name: str
    split: str
    start: int
    stop: int
    rotated: bool

    @property
    def n_tokens(self) -> int:
        """Return the number of tokens."""
        return self.stop - self.start


def plan_files(
    source: ExportSource, options: ExportOptions, output: Path, fewest: int = 1
) -> list[HeadedFile]:
    """Return the files of an export, of which train has at least `fewest`.

    Raises:
        UsageError: there are too few documents for that, or one is too long for a file.
    """
    if "train" not in source.splits:
        raise UsageError(f"{source.directory}: no train documents")
    item_bytes = source.dtype.itemsize
    limit = (_MOST_BYTES - HEADER_BYTES) // item_bytes
    rotated = options.eos == "first" and not has_bos(source)
    files = []
    for split in source.splits:
        n_least = fewest if split == "train" else 1
        ends = cut_at_documents(source, split, min(options.file_tokens, limit), n_least)
        if len(ends) < n_least:
            raise UsageError(
                f"{source.directory}: the trainer needs {plural(fewest, 'train file')}, and "
                f"there is {plural(len(ends), 'train document')}"
            )
        first = 1 if split == "train" else 0
        for number, (start, stop) in enumerate(zip([0, *ends], ends, strict=False), first):
            if stop - start > limit:
                raise UsageError(
                    f"{source.directory}: a document of {stop - start:,} tokens is longer than a "
                    f"file of llm.c can be ({limit:,}): make the dataset with a smaller "
                    "--max-tokens"
                )
            name = f"{set_name(output)}_{split}_{number:06d}.bin"
            files.append(HeadedFile(name, split, start, stop, rotated))
    return files


def written(source: ExportSource, files: list[HeadedFile]) -> list[Written]:
    """Return the files with the functions that write them."""
    item_bytes = source.dtype.itemsize
    return [
        Written(file.name, HEADER_BYTES + file.n_tokens * item_bytes, partial(_write, source, file))
        for file in files
    ]


def check_files(
    source: ExportSource, files: list[HeadedFile], output: Path, reader: str
) -> Checked:
    """Compare every header and every token with the dataset.

    Raises:
        VerifyError: something differs.
    """
    for file in files:
        path = output / file.name
        with path.open("rb") as opened:
            header = np.frombuffer(opened.read(HEADER_BYTES), "<i4")
        expected = [*VARIANTS[source.dtype.itemsize], file.n_tokens]
        if header.tolist() != expected + [0] * 253:
            raise VerifyError(f"{path}: header {header[:3].tolist()}, expected {expected}")
        n_bytes = HEADER_BYTES + file.n_tokens * source.dtype.itemsize
        if path.stat().st_size != n_bytes:
            raise VerifyError(f"{path}: {path.stat().st_size:,} bytes, expected {n_bytes:,}")
        tokens: npt.NDArray[np.unsignedinteger] = np.memmap(
            path, source.dtype, "r", offset=HEADER_BYTES
        )
        if file.rotated:
            if tokens[0] != source.eos_id:
                raise VerifyError(f"{path}: begins with {tokens[0]}, expected {source.eos_id}")
            tokens = tokens[1:]
        check_tokens(source, file.split, file.start, tokens, path)
    n_documents = sum(len(source.documents(split)) for split in source.splits)
    if files and files[0].rotated:
        check_last_tokens(source, _eos(source))
    return Checked(
        f"header rules of {reader}, numpy {np.__version__}",
        f"{plural(sum(file.n_tokens for file in files), 'token')} of "
        f"{plural(n_documents, 'document')} in {plural(len(files), 'file')}",
    )


def set_name(output: Path) -> str:
    """Return the name of the output in characters that no pattern of a shell gives a meaning."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", output.absolute().name) or "tokens"


def has_bos(source: ExportSource) -> bool:
    """Return whether every document begins with bos already."""
    return source.manifest["tokenizer"].get("bos") is not None


def _write(source: ExportSource, file: HeadedFile, out: BinaryIO) -> None:
    out.write(_header(source.dtype.itemsize, file.n_tokens))
    if not file.rotated:
        copy_tokens(source, file.split, file.start, file.stop, out)
        return
    eos = source.dtype.type(_eos(source)).tobytes()
    if read_tokens(source, file.split, file.stop - 1, file.stop).tobytes() != eos:
        raise VerifyError(f"{source.directory}: {file.split} token {file.stop - 1:,} is not eos")
    out.write(eos)
    copy_tokens(source, file.split, file.start, file.stop - 1, out)
    copy_tokens(source, file.split, file.stop - 1, file.stop, None)


def _header(item_bytes: int, n_tokens: int) -> bytes:
    return struct.pack("<3i", *VARIANTS[item_bytes], n_tokens).ljust(HEADER_BYTES, b"\0")


def _eos(source: ExportSource) -> int:
    if source.eos_id is None:
        raise UsageError(f"{source.directory}: its tokenizer has no eos: choose --eos last")
    return source.eos_id
