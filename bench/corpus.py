"""The files of a corpus: what each contender is given, made before anything is timed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.parity import documents

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SEPARATOR, TERMINATOR = ":", "。"
ROWS_PER_GROUP = 4096
START_BYTES = 1_000_000
CHINESE = 1.2
"""Bytes of a character, on average, from which a text counts as Chinese: 104 MB of technical pages
have 1.4, since their code is ASCII, and pages in English 1.0."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """A corpus of JSON Lines, and a directory for what is made of it. No text is repeated.

    `text_bytes`: of rendered UTF-8. `is_chinese`: see `CHINESE`.
    """

    name: str
    path: Path
    directory: Path
    text_bytes: int
    is_chinese: bool

    @property
    def text(self) -> Path:
        """Return the Arrow file of rendered documents."""
        return self.directory / "text.arrow"

    def inputs(self, kind: str, cores: int) -> Sequence[str]:
        """Return the files of a kind: `lines`, `parquet`, `split`, `start`."""
        makers: dict[str, Callable[[], Sequence[Path]]] = {
            "lines": lambda: [self.path],
            "parquet": lambda: [_parquet(self.path, self.directory)],
            "split": lambda: _split(self.path, self.directory, cores),
            "start": lambda: [_head(self.path, self.directory)],
        }
        return [str(path) for path in makers[kind]()]


def make_corpus(name: str, path: Path, directory: Path) -> Corpus:
    """Render a corpus once, in plain Python, for the peers that encode ready text."""
    directory.mkdir(parents=True)
    text = pa.array(list(documents([path], SEPARATOR, TERMINATOR)), pa.large_string())
    n_characters = int(pc.sum(pc.utf8_length(text)).as_py() or 0)
    n_bytes = n_text_bytes(text)
    corpus = Corpus(name, path, directory, n_bytes, n_bytes > CHINESE * n_characters)
    table = pa.table({"text": text})
    with pa.OSFile(str(corpus.text), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return corpus


def read_text(path: Path) -> pa.LargeStringArray:
    """Read rendered documents into memory, as one column."""
    with pa.OSFile(str(path)) as file:
        column = pa.ipc.open_file(file).read_all()["text"].combine_chunks()
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def n_text_bytes(text: pa.LargeStringArray) -> int:
    """Return the bytes of UTF-8 in a column of documents."""
    return int(pc.sum(pc.binary_length(text)).as_py() or 0)


@cache
def _parquet(path: Path, directory: Path) -> Path:
    out = directory / "corpus.parquet"
    with path.open("rb") as lines:
        table = pa.Table.from_pylist([json.loads(line) for line in lines])
    pq.write_table(table, out, row_group_size=ROWS_PER_GROUP)
    return out


@cache
def _split(path: Path, directory: Path, n_files: int) -> tuple[Path, ...]:
    """Cut a file into `n_files` of about equal bytes, at line ends, in a directory of their own."""
    data = _whole_lines(path)
    (directory / "split").mkdir()
    paths, start = [], 0
    for i in range(n_files):
        stop = data.find(b"\n", max(start, len(data) * (i + 1) // n_files - 1)) + 1 or len(data)
        paths.append(directory / "split" / f"{i:04}.jsonl")
        paths[-1].write_bytes(data[start:stop])
        start = stop
    return tuple(paths)


@cache
def _head(path: Path, directory: Path) -> Path:
    out = directory / "start.jsonl"
    data = _whole_lines(path)
    out.write_bytes(data[: data.find(b"\n", START_BYTES) + 1] or data)
    return out


def _whole_lines(path: Path) -> bytes:
    data = path.read_bytes()
    return data if data.endswith(b"\n") else data + b"\n"
