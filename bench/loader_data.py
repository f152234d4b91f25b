"""Datasets of any size for measuring loaders: random ids, or sparse files that take no disk."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import tokmill
from tokmill.dataset.canonical import json_chunks, manifest_sha256
from tokmill.dataset.idx_file import HEADER, MAGIC
from tokmill.dataset.layout import MANIFEST

SAMPLES = Path(__file__).resolve().parent.parent / "data_samples"


def write_dataset(
    directory: Path, *, shards: int, shard_tokens: int, document_tokens: int, sparse: bool
) -> None:
    """Write a dataset of uint16 shards; all have the same documents.

    A manifest of the sample records is taken, and its shards and counts are replaced.
    """
    with tempfile.TemporaryDirectory() as folder:
        made = tokmill.pretrain(
            SAMPLES / "records.jsonl", tokenizer=SAMPLES / "tokenizer", output=f"{folder}/out",
            progress=False,
        )  # fmt: skip
        manifest = dict(made.manifest)
    documents = shard_tokens // document_tokens
    tokens = documents * document_tokens
    entry = {"split": "train", "documents": documents, "tokens": tokens}
    names = [f"train-{number:07d}-0000" for number in range(shards)]
    index = _index(documents, document_tokens)
    for number, name in enumerate(names):
        _write_ids(directory / f"{name}.bin", tokens, None if sparse else number)
        (directory / f"{name}.idx").write_bytes(index)
    manifest["shards"] = [{"name": name, **entry} for name in names]
    manifest["files"] = []
    manifest["totals"] = {
        **manifest["totals"], "documents": shards * documents, "tokens": shards * tokens,
    }  # fmt: skip
    manifest["sha256"] = manifest_sha256(manifest)
    (directory / MANIFEST).write_bytes(b"".join(json_chunks(manifest)))


def _index(documents: int, document_tokens: int) -> bytes:
    columns = (
        np.full(documents, document_tokens, "<i4"),
        np.arange(documents, dtype="<i8") * (2 * document_tokens),
        np.arange(documents + 1, dtype="<i8"),
    )
    header = HEADER.pack(MAGIC, 1, 8, documents, documents + 1)
    return b"".join([header, *(column.tobytes() for column in columns)])


def _write_ids(path: Path, tokens: int, seed: int | None) -> None:
    with path.open("wb") as file:
        if seed is None:
            file.truncate(2 * tokens)
            return
        numbers = np.random.default_rng(seed)
        for start in range(0, tokens, 1 << 22):
            count = min(1 << 22, tokens - start)
            file.write(numbers.integers(3, 50_000, count, dtype=np.uint16).tobytes())
