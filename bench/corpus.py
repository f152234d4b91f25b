"""The files of a corpus: what tokmill and its peers are given, made before anything is timed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from bench.parity import documents

SEPARATOR, TERMINATOR = ":", "。"


@dataclass(frozen=True, slots=True)
class Corpus:
    """A corpus of JSON Lines. No text is repeated.

    `text`: an Arrow file of the rendered documents, for peers that encode ready text. `split`: the
    same lines in a file for each core, for peers that give whole files to their processes.
    """

    name: str
    path: Path
    text: Path
    split: Path


def make_corpus(name: str, path: Path, directory: Path, cores: int) -> Corpus:
    """Render a corpus once, in plain Python, and cut its lines into files of about equal bytes."""
    corpus = Corpus(name, path, directory / "text.arrow", directory / "split")
    corpus.split.mkdir(parents=True)
    text = pa.array(list(documents([path], SEPARATOR, TERMINATOR)), pa.large_string())
    table = pa.table({"text": text})
    with pa.OSFile(str(corpus.text), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    data, start = path.read_bytes(), 0
    for i in range(cores):
        stop = data.find(b"\n", max(start, len(data) * (i + 1) // cores - 1)) + 1 or len(data)
        (corpus.split / f"{i:04}.jsonl").write_bytes(data[start:stop])
        start = stop
    return corpus


def read_text(path: Path) -> pa.LargeStringArray:
    """Read rendered documents into memory, as one column."""
    with pa.OSFile(str(path)) as file:
        column = pa.ipc.open_file(file).read_all()["text"].combine_chunks()
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def n_text_bytes(text: pa.LargeStringArray) -> int:
    """Return the bytes of UTF-8 in a column of documents."""
    return int(pc.sum(pc.binary_length(text)).as_py() or 0)
