"""Marks of duplicates are of the mix, in its order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokmill
from tests.dataset.verifying import problems
from tokmill.api.dataset import Dataset
from tokmill.mixing import inputs
from tokmill.mixing import make as making

Make = Callable[..., Dataset]


@pytest.fixture(scope="module")
def pool(make: Make) -> list[Dataset]:
    """Datasets that share texts, with and without val."""
    rng = random.Random(0)
    words = [f"text {n}" for n in range(40)]
    return [
        make([rng.choice(words) for _ in range(60)], val_fraction=fraction)
        for fraction in (0.0, 0.3, 0.1)
    ]


def documents(dataset: Dataset, split: str) -> list[bytes]:
    return [ids.tobytes() for ids in dataset.split(split)] if split in dataset.splits else []


def marks(dataset: Dataset, split: str) -> list[int]:
    path = dataset.directory / f"duplicates-{split}.bin"
    return np.fromfile(path, np.uint8).tolist() if path.exists() else []


@pytest.mark.parametrize("seed", range(12))
def test_without_what_is_marked_each_text_of_the_mix_is_there_once(
    pool, tmp_path, monkeypatch, seed
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(inputs, "CHUNK_TOKENS", rng.choice([20, 200]))
    monkeypatch.setattr(making, "BUCKET_DOCUMENTS", rng.choice([10, 1000]))
    amounts = rng.choice([["1x"], ["0.5x", "1x", "2.3x"], ["0.2", "0.8"]])
    chosen = rng.sample(pool, rng.randint(1, 3))
    settings: dict[str, Any] = {"shuffle": rng.randrange(9)} if rng.random() < 0.6 else {}
    mixed = tokmill.mix(
        {d.directory: rng.choice(amounts) for d in chosen}, output=tmp_path / "m", dedup="mark",
        workers=1, progress=False, **settings,
    )  # fmt: skip
    mixed.verify()
    texts = [text for split in ("val", "train") for text in documents(mixed, split)]
    marked = [mark for split in ("val", "train") for mark in marks(mixed, split)]
    kept = [text for text, mark in zip(texts, marked, strict=True) if not mark]
    assert kept == list(dict.fromkeys(texts))
    told = mixed.manifest["mix"]
    assert told["duplicates"] == sum(marked)
    if amounts == ["1x"]:
        val = set(documents(mixed, "val"))
        assert told["overlap"] == sum(text in val for text in documents(mixed, "train"))


def test_repeats_of_a_dataset_are_marked(make, tmp_path) -> None:
    source = make(["a", "b", "c"])
    mixed = tokmill.mix(
        {source.directory: "2x"}, output=tmp_path / "m", dedup="mark", progress=False
    )
    assert marks(mixed, "train") == [0, 0, 0, 1, 1, 1]


def test_a_source_that_is_not_in_the_mix_hides_no_text(make, tmp_path) -> None:
    one, two = make(["same", "one"], file="one.jsonl"), make(["same", "two"], file="two.jsonl")
    both = tokmill.mix([one.directory, two.directory], output=tmp_path / "both", progress=False)
    for dedup in ("drop", "mark"):
        mixed = tokmill.mix(
            f"{both.directory}#two.jsonl", output=tmp_path / dedup, dedup=dedup, progress=False
        )
        assert Counter(documents(mixed, "train")) == Counter(documents(two, "train"))
        assert not any(marks(mixed, "train"))


def test_marks_do_not_depend_on_workers(pool, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(making, "BUCKET_DOCUMENTS", 10)
    found = []
    for workers in (1, 2):
        mixed = tokmill.mix(
            {pool[0].directory: "2x", pool[1].directory: "0.5x"}, output=tmp_path / f"{workers}",
            dedup="mark", shuffle=3, workers=workers, progress=False,
        )  # fmt: skip
        found.append(marks(mixed, "train"))
    assert found[0] == found[1]


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: b"\2" + data[1:]])
@pytest.mark.parametrize("kind", ["duplicates", "contaminated"])
def test_verify_finds_marks_that_are_not_of_the_documents(
    pool, tmp_path, rewrite, kind, change
) -> None:
    (tmp_path / "held-out.jsonl").write_text('{"text": "text 1"}\n')
    marks: dict[str, Any] = {"dedup": "mark", "against": [tmp_path / "held-out.jsonl"], "ngram": 2}
    mixed = tokmill.mix([pool[0].directory], output=tmp_path / "m", progress=False, **marks)
    name = f"{kind}-train.bin"
    forged = rewrite(mixed.directory, mixed.manifest, name, change)
    assert problems(mixed.directory, forged) == [
        f"{name}: not a byte, 0 or 1, for each of 60 documents"
    ]
