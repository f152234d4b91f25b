"""Compares every document of a dataset with the reference, written without tokmill's code.

    python bench/parity.py DATASET INPUT.jsonl... --tokenizer T

Records are read with Python's json, rendered by the formula in plain Python, and encoded by the
`tokenizers` library (or SentencePiece for a .model) with control tokens as text; the dataset is
read with numpy alone. Prints the number of documents and of differences; exits 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

Encode = Callable[[list[str]], list[list[int]]]
CALL = 256


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


def render(record: dict[str, Any], separator: str, terminator: str) -> str:
    """Render one record: by the encyclopedia formula, or its text."""
    if "text" in record:
        return str(record["text"] or "")
    text = f"{record.get('title') or ''}{separator}{record.get('summary') or ''}"
    for section in record.get("sections") or []:
        section = section or {}
        text += f"{section.get('title') or ''}{separator}{section.get('content') or ''}{terminator}"
    return text


def documents(inputs: Iterable[Path], separator: str, terminator: str) -> Iterator[str]:
    """Return the documents of JSON Lines files, in order."""
    for path in inputs:
        with path.open(encoding="utf-8", newline="\n") as lines:
            for line in lines:
                yield render(json.loads(line), separator, terminator)


def stored(dataset: Path) -> tuple[Iterator[list[int]], int]:
    """Return the dataset's documents without their eos, and the eos id."""
    manifest = json.loads((dataset / "manifest.json").read_text())
    eos = manifest["tokenizer"]["eos"]["id"]

    def read() -> Iterator[list[int]]:
        for shard in manifest["shards"]:
            tokens = np.memmap(dataset / f"{shard['name']}.bin", manifest["dtype"], "r")
            index = (dataset / f"{shard['name']}.idx").read_bytes()
            lengths = np.frombuffer(index, "<i4", shard["documents"], 34)
            end = 0
            for length in lengths:
                end += int(length)
                document = tokens[end - int(length) : end]
                if document[-1] != eos:
                    sys.exit(f"{shard['name']}: a document does not end in eos")
                yield document[:-1].tolist()

    return read(), eos


def main() -> None:
    """Compare, print, exit 1 at a difference."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("dataset", type=Path)
    parser.add_argument("inputs", type=Path, nargs="+")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--separator", default=":")
    parser.add_argument("--terminator", default="。")
    args = parser.parse_args()
    encode = load_reference(args.tokenizer)
    found, _ = stored(args.dataset)
    n_documents = n_tokens = n_different = 0
    batch: list[str] = []

    def compare() -> None:
        nonlocal n_documents, n_tokens, n_different
        for text, expected in zip(batch, encode(batch), strict=True):
            ids = next(found, None)
            if ids != expected:
                n_different += 1
                if n_different <= 5:
                    print(f"document {n_documents} differs: {text[:60]!r}")
            n_documents += 1
            n_tokens += len(expected)
        batch.clear()

    for text in documents(args.inputs, args.separator, args.terminator):
        batch.append(text)
        if len(batch) == CALL:
            compare()
    compare()
    n_different += sum(1 for _ in found)
    print(f"{n_documents} documents, {n_tokens} tokens without eos, {n_different} differences")
    sys.exit(1 if n_different else 0)


if __name__ == "__main__":
    main()
