"""Datasets of every kind for the tests of the loader."""

from __future__ import annotations

import pytest

from tokmill.api.dataset import Dataset


@pytest.fixture(scope="session", params=["pretrained", "wide", "chats", "unpacked"])
def any_dataset(request: pytest.FixtureRequest) -> Dataset:
    """Every kind: pretraining of several shards, uint32, packed chats, chats."""
    found: Dataset = request.getfixturevalue(request.param)
    return found
