"""The identity of a dataset: equal files of tokens have one, whatever made them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokmill
from tokmill.dataset.identity import identity_of
from tokmill.dataset.manifest import Manifest
from tokmill.errors import VerifyError

ROWS = [{"text": f"hello {i} there", "url": str(i)} for i in range(12)]


@pytest.fixture
def make(tmp_path: Path, tokenizer_dir: Path, write_rows) -> Callable[..., tokmill.Dataset]:
    """Make a dataset of rows; settings may be others."""
    made: list[int] = []

    def make(rows: Any = ROWS, **settings: Any) -> tokmill.Dataset:
        made.append(1)
        source = write_rows(tmp_path / f"in-{len(made)}.jsonl", rows)
        given = {"tokenizer": tokenizer_dir, "engine": "reference", "progress": False}
        given |= {"val_fraction": 0.3, "shard_tokens": 40, "part_bytes": 200, "threads": 1}
        output = tmp_path / f"out-{len(made)}"
        return tokmill.pretrain(source, output=output, **given | settings)

    return make


def opened(directory: Path) -> str:
    return tokmill.open(directory).identity


def test_the_same_tokens_have_one_identity_whatever_made_them(make, tmp_path, tokenizer_dir):
    first = make()
    identity = first.identity
    assert re.fullmatch("blake3:[0-9a-f]{64}", identity)
    assert make().identity == identity, "made again, from another file"
    assert make(keep=["url"]).identity == identity, "with kept fields"
    assert make(packing=16).identity == identity, "packed by the run"
    tokmill.pack(first.directory, 8)
    assert opened(first.directory) == identity, "packed later"
    next(iter((first.directory / "parts").iterdir())).unlink()
    linked = tokmill.mix([make().directory], output=tmp_path / "mix", progress=False)
    assert linked.identity == identity, "a mix that links all shards"
    shutil.copytree(first.directory, tmp_path / "copy")
    assert opened(tmp_path / "copy") == identity, "copied"

    one = make(shard_tokens=0, part_bytes=0, val_fraction=0)
    ids = np.concatenate(list(one))
    (tmp_path / "train.bin").write_bytes(ids.tobytes())
    imported = tokmill.import_dataset(
        tmp_path / "train.bin", trainer="nanogpt", output=tmp_path / "imported",
        tokenizer=tokenizer_dir, progress=False,
    )  # fmt: skip
    assert imported.identity == one.identity, "imported"


def test_another_token_width_split_or_order_has_another_identity(make) -> None:
    changed = [{**ROWS[0], "text": "hallo 0 there"}, *ROWS[1:]]
    datasets = [
        make(),
        make(changed),
        make(ROWS[::-1]),
        make(dtype="uint32"),
        make(val_fraction=0.9),
        make(shard_tokens=7),
        make(checksum="sha256"),
    ]
    identities = [dataset.identity for dataset in datasets]
    assert len(set(identities)) == len(datasets), identities


def test_masks_weights_and_eos_are_part_of_the_identity(make_sft, make_dataset) -> None:
    directory, manifest = make_sft(weight=0.5)
    identity = identity_of(Manifest.of(manifest, directory), directory)
    for name in ("bin", "idx", "mask", "weight"):
        other = json.loads(json.dumps(manifest))
        file = next(one for one in other["files"] if one["name"].endswith(f".{name}"))
        file["blake3"] = "0" * 64
        assert identity_of(Manifest.of(other, directory), directory) != identity
    other = json.loads(json.dumps(manifest))
    other["tokenizer"]["eos"]["id"] = 1
    assert identity_of(Manifest.of(other, directory), directory) != identity
    other = {**manifest, "rules": {}, "sha256": ""}
    assert identity_of(Manifest.of(other, directory), directory) == identity


def without_a_sum(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [file for file in files if not file["name"].endswith(".idx")]


def with_two_algorithms(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    *before, last = files
    return [*before, {"name": last["name"], "bytes": last["bytes"], "sha256": "0" * 64}]


@pytest.mark.parametrize(
    "change",
    [without_a_sum, with_two_algorithms, lambda _: [], lambda _: None, lambda _: [3], lambda _: {}],
)
def test_a_manifest_without_the_sums_of_its_shards_is_one_line(make_dataset, change) -> None:
    directory, manifest = make_dataset()
    manifest["files"] = change(manifest["files"])
    with pytest.raises(VerifyError, match=r"manifest\.json: damaged manifest: files"):
        identity_of(Manifest.of(manifest, directory), directory)
