"""Datasets in one bucket are merged by the store; nothing passes through this machine."""

from __future__ import annotations

import json

import pytest

import tokmill
from tests.fixtures.datasets import RECORDS, TOKENIZER
from tokmill.place import open_place


@pytest.fixture
def inputs(url: str, tmp_path) -> list[str]:
    urls = [f"{url}-{name}" for name in ("a", "b")]
    for place in urls:
        tokmill.pretrain(
            RECORDS, tokenizer=TOKENIZER, output=place, val_fraction=0.1, progress=False,
            part_bytes=100_000,
        )  # fmt: skip
    return urls


def test_a_merge_is_copied_by_the_store(inputs, url, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tokmill.place.bucket.Bucket._upload", None)
    settings = {"output": url, "progress": False}
    with pytest.raises(tokmill.TokmillError, match="read from a disk"):
        tokmill.mix(inputs, shuffle=1, **settings)
    merged = tokmill.mix(inputs, **settings)
    assert tokmill.mix(inputs, **settings).manifest == merged.manifest  # it is complete
    place = open_place(url)
    manifest = json.loads(place.read("manifest.json"))
    own = [json.loads(open_place(one).read("manifest.json")) for one in inputs]
    assert manifest["totals"]["tokens"] == sum(m["totals"]["tokens"] for m in own)
    entries = place.entries()
    assert all(entries[file["name"]] == file["bytes"] for file in manifest["files"])
    tokmill.verify(url)


def test_places_of_two_kinds_are_refused(inputs, url, pretrained, tmp_path) -> None:
    with pytest.raises(tokmill.TokmillError, match="write the mix to a disk"):
        tokmill.mix([pretrained.directory], output=url, progress=False)
    with pytest.raises(tokmill.TokmillError, match="read from a disk"):
        tokmill.mix(inputs, output=tmp_path / "out", progress=False)
