from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

MakeDataset = Callable[..., Path]


@pytest.fixture
def make_dataset(tmp_path: Path) -> MakeDataset:
    """Write a small dataset: ids of each shard, masks, and a manifest with what loading needs."""

    def make(*shards: list[int], masks: list[list[int]] | None = None) -> Path:
        rows = []
        for number, ids in enumerate(shards):
            stem = f"train-{number:07d}-0000"
            np.array(ids, "<u2").tofile(tmp_path / f"{stem}.bin")
            if masks is not None:
                np.array(masks[number], "u1").tofile(tmp_path / f"{stem}.mask")
            rows.append({"name": stem, "split": "train", "documents": 1, "tokens": len(ids)})
        manifest = {
            "format_version": 1, "kind": "pretrain", "config": {}, "dtype": "uint16",
            "shards": rows, "tokenizer": {"vocab_size": 70}, "length_histogram": [],
            "totals": {"tokens": sum(map(len, shards)), "documents": len(shards)},
        }  # fmt: skip
        if masks is not None:
            manifest |= {"mask": {}, "config": {"sft": {"packing": 0, "weights": "none"}}}
        (tmp_path / "manifest.json").write_text(json.dumps(manifest))
        return tmp_path

    return make
