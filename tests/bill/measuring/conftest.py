from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

MakeDataset = Callable[..., Path]
MASK = {
    **dict.fromkeys(("preset", "boundary", "template", "alignment", "template_sha256"), "x"),
    "trained": [],
    "ends": {"rule": "eot", "last_ids": []},
    "cut": 0,
}


@pytest.fixture
def make_dataset(tmp_path: Path, make_manifest: Callable[..., dict[str, Any]]) -> MakeDataset:
    """Write a small dataset: ids of each shard, masks, and a manifest with what loading needs."""

    def make(*shards: list[int], masks: list[list[int]] | None = None) -> Path:
        rows = []
        for number, ids in enumerate(shards):
            stem = f"train-{number:07d}-0000"
            np.array(ids, "<u2").tofile(tmp_path / f"{stem}.bin")
            if masks is not None:
                np.array(masks[number], "u1").tofile(tmp_path / f"{stem}.mask")
            rows.append({"name": stem, "split": "train", "documents": 1, "tokens": len(ids)})
        counts = {"tokens": sum(map(len, shards)), "documents": len(shards)}
        manifest = make_manifest(counts, shards=[row for row in rows if row["tokens"]])
        if masks is not None:
            manifest |= {"kind": "sft", "mask": MASK}
            manifest["config"]["sft"] = {
                "packing": 0, "weights": "refuse", "too_long": "drop", "packed_rows": False
            }  # fmt: skip
        (tmp_path / "manifest.json").write_text(json.dumps(manifest))
        return tmp_path

    return make
