"""Fixtures of mixes: datasets of texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import tokmill
from tests.fixtures.datasets import TOKENIZER
from tokmill.api.dataset import Dataset


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Dataset]:
    """Make a dataset of texts."""

    def make(texts: Sequence[str], **settings: Any) -> Dataset:
        folder = tmp_path_factory.mktemp("made")
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        path = folder / settings.pop("file", "texts.jsonl")
        path.write_text(lines, encoding="utf-8")
        return tokmill.pretrain(
            path, tokenizer=TOKENIZER, output=folder / "out", progress=False, **settings
        )

    return make
