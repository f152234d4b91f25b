"""Small datasets, made by the writer and described as `pipeline.finish` describes one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import blake3
import numpy as np
import pytest

from tokmill.dataset.canonical import json_chunks, manifest_sha256
from tokmill.dataset.layout import MANIFEST, PLAN
from tokmill.dataset.packed_rows import write_packed_rows
from tokmill.dataset.packs import summary, write_pack_index
from tokmill.dataset.writer import ShardWriter, write_hashed_chunks

EOS, BOS, VOCAB_SIZE = 2, 1, 100

DOCUMENTS = {
    "train-0000000-0000": [[1, 7, 8, 2], [1, 9, 2]],
    "val-0000000-0000": [[1, 10, 2]],
    "train-0000000-0001": [[1, 2], [1, 11, 12, 13, 2]],
}

SAMPLES = {
    "train-0000000-0000": [([1, 7, 8, 3], [0, 0, 1, 1]), ([1, 9, 3], [0, 1, 1])],
    "val-0000000-0000": [([1, 10, 3], [0, 1, 1])],
    "train-0000000-0001": [([1, 3], [0, 1]), ([1, 11, 12, 13, 3], [0, 1, 0, 1, 1])],
}
"""Of 4, 3, 2 and 5 tokens in train, 3 in val; 10 of 17 are trained."""

ROWS = {"train": ([0, 1, 3, 4], [0, 1, 2, 3]), "val": ([0, 1], [0])}
"""Best-fit-decreasing into rows of 5."""

RULE = {
    "preset": "tokmill",
    "boundary": "split",
    "alignment": "target",
    "template": "plain",
    "trained": ["content"],
    "template_sha256": "0" * 64,
    "ends": {"rule": "eot", "last_ids": [3]},
    "cut": 0,
}


def write_manifest(directory: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Write a manifest with the sum that fits it, and give it."""
    manifest["sha256"] = manifest_sha256(manifest)
    (directory / MANIFEST).write_bytes(b"".join(json_chunks(manifest)))
    return manifest


def shard(
    directory: Path,
    name: str,
    documents: Sequence[Sequence[int]],
    dtype: str,
    masks: Sequence[Sequence[int]] = (),
    weight: float = 0,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    split = name.split("-")[0]
    lengths = np.array([len(document) for document in documents], np.int64)
    beside: dict[str, Any] = {}
    if masks:
        beside["mask"] = np.concatenate([np.array(mask, np.uint8) for mask in masks])
    if weight:
        beside["weight"] = beside["mask"] * np.float32(weight)
    writer = ShardWriter(directory, split, name, np.dtype(dtype).newbyteorder("<"), tuple(beside))
    writer.append(
        np.concatenate([np.array(document, dtype) for document in documents]), lengths, beside
    )
    entry = writer.commit()
    listed = {
        "name": name,
        "split": split,
        "documents": entry.n_documents,
        "tokens": entry.n_tokens,
    }
    return listed, [file.as_json() for file in entry.files]


@pytest.fixture
def make_dataset(tmp_path: Path) -> Callable[..., tuple[Path, dict[str, Any]]]:
    """Make a dataset of five documents in three shards; keywords override manifest entries."""

    def make(
        documents: dict[str, list[list[int]]] = DOCUMENTS, dtype: str = "uint16", **changes: Any
    ) -> tuple[Path, dict[str, Any]]:
        directory = tmp_path / "out"
        directory.mkdir()
        files = [write_hashed_chunks(directory, PLAN, [b"{}\n"], "blake3").as_json()]
        shards = []
        for name, texts in documents.items():
            listed, written = shard(directory, name, texts, dtype)
            shards.append(listed)
            files += written
        lengths = [len(text) for texts in documents.values() for text in texts]
        manifest = {**described(lengths, dtype), "shards": shards, "files": files, **changes}
        return directory, write_manifest(directory, manifest)

    return make


def described(lengths: Sequence[int], dtype: str, **counted: int) -> dict[str, Any]:
    """Return the entries of a manifest that do not name files."""
    counts = {
        "records": len(lengths) + 3,
        "documents": len(lengths),
        "tokens": sum(lengths),
        "text_bytes": 0,
        "input_bytes": 0,
        "drops": {"short": 2},
        "rejects": {"json": 1},
        **counted,
    }
    bins = [length.bit_length() - 1 for length in lengths]
    return {
        "format_version": 1,
        "config": {"tokenizer": {"path": "t", "pattern": "", "control_tokens_in_text": "text"}},
        "engine": {
            "name": "tokenizers",
            "version": "1",
            "reason": "asked for",
            "mb_per_s": {},
            "n_checked": 0,
            "refused": {},
        },
        "run": {"wall_s": 1, "text_bytes_per_s": 1, "peak_memory_bytes": 1, "resumed_parts": 0},
        "tokenizer": {
            "name": "t",
            "sha256": "0" * 64,
            "vocab_size": VOCAB_SIZE,
            "eos": {"id": EOS, "token": "<eos>"},
            "bos": {"id": BOS, "token": "<bos>"},
        },
        "dtype": dtype,
        "totals": counts,
        "length_histogram": [bins.count(i) for i in range(max(bins) + 1)],
        "sources": [{"path": "corpus.jsonl", **counts}],
    }


@pytest.fixture
def make_sft(tmp_path: Path) -> Callable[..., tuple[Path, dict[str, Any]]]:
    """Make a dataset of five samples with masks; `weight` is that of every trained token.

    `packed`: the capacity of rows that are written, as `ROWS` says. Keywords override entries.
    """

    def make(
        samples: dict[str, list[tuple[list[int], list[int]]]] = SAMPLES,
        weight: float = 0,
        packed: int = 0,
        **changes: Any,
    ) -> tuple[Path, dict[str, Any]]:
        directory = tmp_path / "sft"
        directory.mkdir()
        files = [write_hashed_chunks(directory, PLAN, [b"{}\n"], "blake3").as_json()]
        shards = []
        for name, pairs in samples.items():
            ids, masks = zip(*pairs, strict=True)
            listed, written = shard(directory, name, ids, "uint16", masks, weight)
            shards.append(listed)
            files += written
        pairs = [pair for found in samples.values() for pair in found]
        n_trained = sum(sum(mask) for _, mask in pairs)
        said = described([len(ids) for ids, _ in pairs], "uint16", trained_tokens=n_trained)
        said["config"]["sft"] = {
            "weights": "file" if weight else "refuse",
            "too_long": "drop",
            "packing": packed,
            "packed_rows": bool(packed),
        }
        manifest = {
            **said,
            "kind": "sft",
            "mask": RULE,
            "shards": shards,
            "files": files,
            **changes,
        }
        if packed:
            files += add_packs(directory, manifest, packed)
        return directory, write_manifest(directory, manifest)

    return make


def add_packs(directory: Path, manifest: dict[str, Any], capacity: int) -> list[dict[str, Any]]:
    """Write `ROWS` and describe them in the manifest; give the files."""
    files: list[Any] = []
    packs = manifest["packs"] = {}
    for split, (offsets, numbers) in ROWS.items():
        files += write_pack_index(directory, split, np.array(offsets), np.array(numbers), "blake3")
        own = [entry for entry in manifest["shards"] if entry["split"] == split]
        n_tokens = sum(entry["tokens"] for entry in own)
        counted = summary(len(offsets) - 1, len(numbers), n_tokens, capacity)
        packs[split] = {**counted, "bytes_per_sample": 8}
    rows, listed = write_packed_rows(directory, manifest, "blake3", shard_bytes=20)
    for split, shards in listed.items():
        packs[split]["shards"] = shards
    return [entry.as_json() for entry in [*files, *rows]]


@pytest.fixture
def rewrite() -> Callable[..., dict[str, Any]]:
    """Change a file and make every sum fit again; only what the bytes mean can tell."""

    def change_file(
        directory: Path, manifest: dict[str, Any], name: str, change: Callable[[bytes], bytes]
    ) -> dict[str, Any]:
        path = directory / name
        data = change(path.read_bytes())
        path.unlink()
        path.write_bytes(data)
        forged = copy.deepcopy(manifest)
        for entry in forged["files"]:
            if entry["name"] == name:
                entry |= {"bytes": len(data), "blake3": blake3.blake3(data).hexdigest()}
        return {**forged, "sha256": manifest_sha256(forged)}

    return change_file
