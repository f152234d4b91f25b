"""The manifest of an open dataset is looked at now and then, and read only when it changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tokmill.dataset.edition as module
from tokmill.dataset.edition import Edition
from tokmill.errors import VerifyError


def test_the_manifest_is_read_again_only_when_its_file_is_another(
    make_dataset, monkeypatch
) -> None:
    directory, manifest = make_dataset()
    read: list[Path] = []
    own: Any = module.read_manifest
    monkeypatch.setattr(module, "read_manifest", lambda path: read.append(path) or own(path))
    edition = Edition(directory, manifest["sha256"])
    for _ in range(3):
        edition.check()
    assert read == [directory]
    (directory / "manifest.json").touch()
    edition.check()
    assert read == [directory, directory]


def test_a_look_is_taken_once_a_second(make_dataset, monkeypatch) -> None:
    directory, manifest = make_dataset()
    now = [10.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    edition = Edition(directory, manifest["sha256"])
    edition.check_now_and_then()
    (directory / "manifest.json").unlink()
    now[0] += 0.99
    edition.check_now_and_then()
    now[0] += 0.02
    with pytest.raises(VerifyError, match="moved or removed"):
        edition.check_now_and_then()
