"""The files of a corpus: what tokmill and its peers are given, made before anything is timed.

Records are rendered and encoded without tokmill's code.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

SEPARATOR, TERMINATOR = ":", "。"
Encode = Callable[[list[str]], list[list[int]]]


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
    with path.open(encoding="utf-8", newline="\n") as lines:
        texts = [render(json.loads(line)) for line in lines]
    table = pa.table({"text": pa.array(texts, pa.large_string())})
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


def load_reference(path: Path) -> Encode:
    """Return the reference library's batch encoder for a tokenizer file or directory."""
    if path.is_dir():
        json_file, model_file = path / "tokenizer.json", path / "tokenizer.model"
        path = json_file if json_file.exists() else model_file
    if path.suffix == ".model":
        from sentencepiece import SentencePieceProcessor

        processor = SentencePieceProcessor(model_file=str(path))
        return lambda texts: [list(ids) for ids in processor.encode(texts, out_type=int)]
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return lambda texts: [
        e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    ]


def render(record: dict[str, Any]) -> str:
    """Render one record: by the encyclopedia formula, or its text."""
    if "text" in record:
        return str(record["text"] or "")
    text = f"{record.get('title') or ''}{SEPARATOR}{record.get('summary') or ''}"
    for section in record.get("sections") or []:
        section = section or {}
        text += f"{section.get('title') or ''}{SEPARATOR}{section.get('content') or ''}{TERMINATOR}"
    return text
