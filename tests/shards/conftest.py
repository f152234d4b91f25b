"""A small dataset, made by the writer and described as `pipeline.finish` describes one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokmill.shards.layout import MANIFEST, PLAN
from tokmill.shards.record import file_as_json, manifest_sha256
from tokmill.shards.writer import ShardWriter, write_file

EOS, BOS, VOCAB_SIZE = 2, 1, 100

DOCUMENTS = {
    "train-0000000-0000": [[1, 7, 8, 2], [1, 9, 2]],
    "val-0000000-0000": [[1, 10, 2]],
    "train-0000000-0001": [[1, 2], [1, 11, 12, 13, 2]],
}


def write_manifest(directory: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Write a manifest with the sum that fits it, and give it."""
    manifest["sha256"] = manifest_sha256(manifest)
    (directory / MANIFEST).write_text(json.dumps(manifest))
    return manifest


def shard(
    directory: Path, name: str, documents: Sequence[Sequence[int]], dtype: str
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    split, part, step = name.split("-")
    writer = ShardWriter(directory, split, int(part), int(step), np.dtype(dtype).newbyteorder("<"))
    lengths = np.array([len(document) for document in documents], np.int64)
    writer.append(np.concatenate([np.array(document, dtype) for document in documents]), lengths)
    entry = writer.commit()
    listed = {
        "name": name,
        "split": split,
        "documents": entry.n_documents,
        "tokens": entry.n_tokens,
    }
    return listed, [file_as_json(file) for file in entry.files]


@pytest.fixture
def make_dataset(tmp_path: Path) -> Callable[..., tuple[Path, dict[str, Any]]]:
    """Make a dataset of five documents in three shards; keywords override manifest entries."""

    def make(
        documents: dict[str, list[list[int]]] = DOCUMENTS, dtype: str = "uint16", **changes: Any
    ) -> tuple[Path, dict[str, Any]]:
        directory = tmp_path / "out"
        directory.mkdir()
        files = [file_as_json(write_file(directory, PLAN, b"{}\n"))]
        shards = []
        for name, texts in documents.items():
            listed, written = shard(directory, name, texts, dtype)
            shards.append(listed)
            files += written
        lengths = [len(text) for texts in documents.values() for text in texts]
        counts = {
            "records": len(lengths) + 3,
            "documents": len(lengths),
            "tokens": sum(lengths),
            "drops": {"short": 2},
            "rejects": {"json": 1},
        }
        bins = [length.bit_length() - 1 for length in lengths]
        manifest = {
            "format_version": 1,
            "tokenizer": {
                "vocab_size": VOCAB_SIZE,
                "eos": {"id": EOS, "token": "<eos>"},
                "bos": {"id": BOS, "token": "<bos>"},
            },
            "dtype": dtype,
            "totals": counts,
            "length_histogram": [bins.count(i) for i in range(max(bins) + 1)],
            "sources": [{"path": "corpus.jsonl", **counts}],
            "shards": shards,
            "files": files,
            **changes,
        }
        return directory, write_manifest(directory, manifest)

    return make
