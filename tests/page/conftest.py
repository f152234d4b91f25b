"""A dataset of SFT with two splits, packed, whose trained tokens are picked by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokmill.dataset.packing import Packs
from tokmill.dataset.packs import write_pack_index
from tokmill.dataset.writer import ShardWriter
from tokmill.tokenizer.tokenizer import Tokenizer

SHARDS = {
    "train-0000000-0000": ["one", "two"],
    "val-0000000-0000": ["three"],
    "train-0000001-0000": ["four", "five"],
}
"""Messages by shard: samples are <|im_start|> text <eos>, of which the text and <eos> are trained,
but for the text's first token."""


@pytest.fixture
def dataset(tmp_path: Path, tokenizer: Tokenizer) -> Callable[..., tuple[Path, dict[str, Any]]]:
    """Write the dataset; `weight` of what is trained, where it is to have weights."""

    def make(weight: float = 0) -> tuple[Path, dict[str, Any]]:
        library = tokenizer.library()
        listed = []
        for name, texts in SHARDS.items():
            ids = [[2, *library.encode(text).ids, 0] for text in texts]
            lengths = np.array([len(sample) for sample in ids], np.int64)
            mask = np.concatenate([[0, 0, *[1] * (len(s) - 2)] for s in ids]).astype(np.uint8)
            beside: dict[str, Any] = {"mask": mask}
            if weight:
                beside["weight"] = mask * np.float32(weight)
            split = name.split("-")[0]
            writer = ShardWriter(tmp_path, split, name, np.dtype("<u2"), tuple(beside))
            writer.append(np.concatenate(ids).astype("<u2"), lengths, beside)
            entry = writer.commit()
            counts = {"documents": entry.n_documents, "tokens": entry.n_tokens}
            listed.append({"name": name, "split": split, **counts})
        packs = Packs(np.array([0, 1, 4]), np.array([2, 0, 1, 3]))
        write_pack_index(tmp_path, "train", {}, [packs], "blake3")
        n_tokens = sum(entry["tokens"] for entry in listed)
        manifest: dict[str, Any] = {
            "kind": "sft",
            "format_version": 1,
            "config": {
                "sft": {
                    "preset": "tokmill",
                    "template": "plain",
                    "weights": "file" if weight else "refuse",
                },
                "tokenizer": {"path": tokenizer.name, "pattern": ""},
            },
            "dtype": "uint16",
            "mask": {"preset": "tokmill", "boundary": "split", "template": "plain"},
            "packs": {"train": {"rows": 2, "capacity": 20, "fill": 0.9}},
            "shards": listed,
            "tokenizer": {
                "name": "tiny",
                "vocab_size": 290,
                "eos": {"id": 0, "token": "<eos>"},
                "bos": None,
                "sha256": tokenizer.sha256,
            },
            "totals": {"documents": 5, "tokens": n_tokens, "trained_tokens": n_tokens - 10},
        }
        (tmp_path / "manifest.json").write_text(json.dumps(manifest))
        return tmp_path, manifest

    return make
