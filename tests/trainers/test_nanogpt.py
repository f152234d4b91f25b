"""An export for nanoGPT: one file for each split, read as its get_batch reads."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import tokmill
from tokmill.api.dataset import Dataset
from tokmill.dataset.checksum import manifest_sha256
from tokmill.errors import UsageError, VerifyError
from tokmill.trainers.nanogpt import NANOGPT
from tokmill.trainers.options import ExportOptions
from tokmill.trainers.trainer import ExportSource


def stream(dataset: Dataset, split: str) -> bytes:
    return b"".join(
        (dataset.directory / f"{shard.name}.bin").read_bytes()
        for shard in dataset.shards
        if shard.split == split
    )


def test_the_shards_of_a_split_become_one_file(pretrained: Dataset, tmp_path) -> None:
    made = pretrained.export("nanogpt", tmp_path / "e", check=True)
    assert [(file.name, file.how) for file in made.files] == [
        ("train.bin", "written"),
        ("val.bin", "written"),
        ("meta.pkl", "written"),
    ]
    for split in ("train", "val"):
        assert (tmp_path / "e" / f"{split}.bin").read_bytes() == stream(pretrained, split)
    assert made.checked.compared == f"{pretrained.n_tokens:,} tokens"


def test_the_vocabulary_is_padded_in_meta(single: Dataset, tmp_path) -> None:
    made = single.export("nanogpt", tmp_path / "e")
    n_ids = single.manifest["tokenizer"]["vocab_size"]
    meta = pickle.loads((tmp_path / "e" / "meta.pkl").read_bytes())
    assert list(meta) == ["vocab_size"]
    assert meta["vocab_size"] % 64 == 0
    assert n_ids <= meta["vocab_size"] < n_ids + 64
    assert any("KeyError 'stoi'" in note for note in made.notes)


def gpt2(dataset: Dataset, folder: Path) -> Dataset:
    """The dataset, with the entry of GPT-2's tokenizer in its manifest."""
    folder.mkdir()
    for path in dataset.directory.iterdir():
        if path.is_file():
            (folder / path.name).hardlink_to(path)
    manifest = dict(dataset.manifest)
    probe = [15496, 11, 220, 10310, 244, 45911, 234, 0, 17031, 198, 197, 87, 796, 23884]
    manifest["tokenizer"] = {
        **manifest["tokenizer"],
        "vocab_size": 50257,
        "probe": {**manifest["tokenizer"]["probe"], "ids": probe},
    }
    manifest["sha256"] = manifest_sha256(manifest)
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return tokmill.open(folder)


def test_gpt2_needs_no_meta_since_it_is_nanogpts_default(single: Dataset, tmp_path) -> None:
    made = gpt2(single, tmp_path / "gpt2").export("nanogpt", tmp_path / "e")
    assert [file.name for file in made.files] == ["train.bin", "val.bin"]
    assert made.notes == ()


def test_the_usage_is_a_settings_file_that_holds_from_any_directory(
    single: Dataset, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = single.export("nanogpt", "e's")
    found: dict[str, str] = {}
    exec(made.usage, found)
    assert found["dataset"] == str(tmp_path / "e's")
    assert np.memmap(Path("data") / found["dataset"] / "val.bin", np.uint16, "r").ndim == 1


def test_wide_ids_are_refused_with_the_way_out(wide: Dataset, tmp_path) -> None:
    with pytest.raises(UsageError, match='uint32: make it with dtype="uint16"'):
        wide.export("nanogpt", tmp_path / "e")
    assert not (tmp_path / "e").exists()


@pytest.mark.parametrize("place", [7, -1])
def test_a_changed_token_is_found_by_the_check(pretrained: Dataset, tmp_path, place: int) -> None:
    pretrained.export("nanogpt", tmp_path / "e", copy=True)
    path = tmp_path / "e" / "train.bin"
    path.chmod(0o644)
    tokens = np.memmap(path, np.uint16, "r+")
    tokens[place] += 1
    tokens.flush()
    with pytest.raises(VerifyError, match=f"token {place % len(tokens):,} is {tokens[place]},"):
        NANOGPT.check(ExportSource(pretrained.directory), ExportOptions(), tmp_path / "e")
