from __future__ import annotations

import json

import numpy as np
import pytest

from tokmill.dataset import documents
from tokmill.dataset.documents import Documents, ShardFiles
from tokmill.dataset.manifest import Manifest
from tokmill.dataset.reader import read_intact_manifest
from tokmill.errors import VerifyError


def test_a_manifest_that_was_changed_is_not_intact(make_dataset):
    directory, manifest = make_dataset()
    assert read_intact_manifest(directory).plain == manifest
    (directory / "manifest.json").write_text(json.dumps({**manifest, "dtype": "uint32"}))
    with pytest.raises(VerifyError, match=r"manifest\.json: its own sha256 does not match"):
        read_intact_manifest(directory)


@pytest.mark.parametrize("content", [None, b"", b"\x00\x01"])
def test_a_mask_that_is_missing_or_of_another_length_is_an_error(make_sft, content):
    directory, manifest = make_sft()
    path = directory / "train-0000000-0000.mask"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(VerifyError, match=r"train-0000000-0000\.mask: "):
        next(Documents(directory, Manifest.of(manifest, directory)).shards())


def read_none(files: ShardFiles) -> None:
    files.document_spans(np.empty(0, np.int64))


# Parts: the manifest of an open dataset is looked at now and then, and read when it changed


def test_a_look_is_taken_once_a_second(make_dataset, monkeypatch) -> None:
    directory, manifest = make_dataset()
    now = [10.0]
    monkeypatch.setattr(documents.time, "monotonic", lambda: now[0])
    files = ShardFiles(Documents(directory, Manifest.of(manifest, directory), "train"))
    read_none(files)
    (directory / "manifest.json").unlink()
    (directory / "plan.json").unlink()
    now[0] += 0.99
    read_none(files)
    now[0] += 0.02
    with pytest.raises(VerifyError, match="moved or removed"):
        read_none(files)
