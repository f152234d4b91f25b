"""Batches say which source each target is from, and rows of one source can be read alone."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokmill
from tests.fixtures.written_datasets import write_manifest
from tokmill.errors import UsageError
from tokmill.loader import Loader, packs, windows

QUIET: Any = {"progress": False}


def write(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


@pytest.fixture(scope="module")
def named(tmp_path_factory, tokenizer_dir) -> tokmill.Dataset:
    """Documents of three sources, shuffled, in shards of a few, with packs of 16 tokens."""
    folder = tmp_path_factory.mktemp("named")
    for name, n in (("wiki", 30), ("math", 9), ("code", 20)):
        rows = write(folder / f"{name}.jsonl", [f"{name} {i} " + "x " * (i % 7) for i in range(n)])
        tokmill.pretrain(rows, tokenizer=tokenizer_dir, output=folder / name, **QUIET)
    inputs = {str(folder / name): 1.0 for name in ("wiki", "math", "code")}
    mixed = tokmill.mix(inputs, shuffle=3, shard_tokens=150, output=folder / "mix", **QUIET)
    tokmill.pack(mixed.directory, length=16)
    return tokmill.open(mixed.directory)


def sources_of_tokens(dataset: tokmill.Dataset) -> list[str]:
    """Return the name of each token's source, in the order of the split."""
    found = []
    for number, ids in enumerate(dataset):
        found += [Path(dataset.origin(number).path).stem] * len(ids)
    return found


def stem(name: str) -> str:
    return Path(name).name.removesuffix(".jsonl")


@pytest.mark.parametrize("shift", [True, False])
@pytest.mark.parametrize("length", [1, 7, 40])
def test_every_target_of_a_window_names_its_source(named, shift: bool, length: int) -> None:
    source = windows(named, length, shift=shift, sources=True)
    every = sources_of_tokens(named)
    rows = source.batch(range(len(source)))
    found = [stem(source.source_names[i]) for i in rows["source_ids"].ravel().tolist()]
    first = int(shift)
    assert found == every[first : first + len(found)]
    np.testing.assert_array_equal(
        rows["labels"], windows(named, length, shift=shift).batch(range(len(source)))["labels"]
    )


@pytest.mark.parametrize("shift", [True, False])
@pytest.mark.parametrize("name", ["wiki", "math", "code"])
@pytest.mark.parametrize("make", ["windows", "packs"])
def test_rows_of_one_source_train_its_targets_alone_and_once(named, make, shift, name) -> None:
    def source(**options: Any) -> Any:
        if make == "packs":
            return packs(named, shift=shift, **options)
        return windows(named, 8, shift=shift, **options)

    whole = source(sources=True)
    number = [stem(one) for one in whole.source_names].index(name)
    own = source(source=whole.source_names[number], sources=True)
    every, found = whole.batch(range(len(whole))), own.batch(range(len(own)))
    is_own = every["source_ids"] == number
    wanted = np.where(is_own, every["labels"], -100)
    holds_one = is_own.any(axis=1)
    np.testing.assert_array_equal(found["labels"], wanted[holds_one])
    np.testing.assert_array_equal(found["input_ids"], every["input_ids"][holds_one])
    assert (found["source_ids"] == number).any(axis=1).all()
    assert 0 < len(own) <= len(whole)


def test_padding_is_of_no_source(named) -> None:
    source = packs(named, shift=True, sources=True)
    rows = source.batch(range(len(source)))
    is_padding = (
        np.arange(16)
        >= np.array(
            [len(packs(named, shift=True, pad=False)[i]["input_ids"]) for i in range(len(source))]
        )[:, None]
    )
    np.testing.assert_array_equal(rows["source_ids"] == -1, is_padding)


def test_a_blend_numbers_the_sources_of_all_its_members(named) -> None:
    members = (named.directory, named.directory.parent / "wiki")
    blend = [(windows(one, 16, shift=True, sources=True), 1) for one in members]
    loader = Loader(blend, 6, seed=1, epochs=1)
    n_first = len(blend[0][0].source_names)
    assert loader.source_names == (*blend[0][0].source_names, *blend[1][0].source_names)
    for batch in loader:
        are_second = np.sort((batch["source_ids"] >= n_first).all(axis=1))
        assert are_second.tolist() == [False] * 3 + [True] * 3
    padded = Loader(blend[0][0], 50, tail="pad", epochs=1)
    (*_, last) = padded
    assert (last["source_ids"][last["is_padding"]] == -1).all()


def test_a_source_that_is_not_there_and_a_dataset_without_origins_are_refused(
    named, tmp_path, tokenizer_dir
) -> None:
    with pytest.raises(UsageError, match=r"source: expected one of .*math.*; found 'wikis'"):
        windows(named, 8, shift=True, source="wikis")
    np.array([5, 6, 0, 7, 0] * 9, "<u2").tofile(tmp_path / "train.bin")
    imported = tokmill.import_dataset(
        tmp_path, trainer="nanogpt", tokenizer=tokenizer_dir, output=tmp_path / "out", **QUIET
    )
    assert windows(imported, 8, shift=True, sources=True).source_names == ("out",)
    with pytest.raises(UsageError, match="does not say which source"):
        windows(imported, 8, shift=True, source="out")


def test_a_state_is_that_of_its_source_alone(named) -> None:
    whole = windows(named, 8, shift=True)
    name = windows(named, 8, shift=True, sources=True).source_names[0]
    prints = {
        windows(named, 8, shift=True, source=name).fingerprint,
        whole.fingerprint,
        windows(named, 8, shift=True, sources=True).fingerprint,
    }
    assert len(prints) == 2  # ids of sources change no sample


@pytest.mark.parametrize("pad", [True, False])
@pytest.mark.parametrize("shift", [True, False])
def test_with_weights_by_sample_each_sample_counts_as_one(chats, shift, pad) -> None:
    plain = packs(chats, shift=shift, pad=pad)
    equal = packs(chats, shift=shift, pad=pad, weights="sample")
    for number in range(len(plain)):
        row, weighed = plain[number], equal[number]
        starts = row["cu_seqlens"]
        for start, stop in pairwise(starts):
            is_target = row["labels"][start:stop] != -100
            weights = weighed["weights"][start:stop]
            assert (weights > 0).tolist() == is_target.tolist()
            assert weights.sum() == pytest.approx(1.0 if is_target.any() else 0.0, abs=1e-5)
            assert len(set(weights[is_target].tolist())) <= 1
    with pytest.raises(UsageError, match="weights: expected token or sample, found 'row'"):
        packs(chats, shift=shift, weights="row")  # type: ignore[arg-type]


def test_weights_of_a_dataset_are_multiplied_before_a_sample_is_made_one(make_sft, rewrite) -> None:
    directory, manifest = make_sft(packed=5, weight=0.5)
    for shard in manifest["shards"]:

        def uneven(data: bytes) -> bytes:
            weights = np.frombuffer(data, "<f4")
            steps = np.arange(1, len(weights) + 1, dtype=np.float32)
            return (weights * steps).astype("<f4").tobytes()

        manifest = rewrite(directory, manifest, f"{shard['name']}.weight", uneven)
    (directory / "manifest.json").unlink()
    write_manifest(directory, manifest)
    plain = packs(directory, shift=False)
    equal = packs(directory, shift=False, weights="sample")
    n_uneven = 0
    for number in range(len(plain)):
        row, weighed = plain[number], equal[number]
        for start, stop in pairwise(row["cu_seqlens"]):
            own = row["weights"][start:stop]
            n_uneven += len(set(own[own > 0].tolist())) > 1
            expected = own / own.sum() if own.any() else own
            np.testing.assert_allclose(weighed["weights"][start:stop], expected, rtol=1e-6)
    assert n_uneven > 1
