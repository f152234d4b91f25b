"""Automodel's own readers take an export: each document, and the file that names the splits."""

from __future__ import annotations

import pytest

from tests.oracles.conftest import import_or_skip
from tokmill.trainers.export import export
from tokmill.trainers.options import ExportOptions

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def reader() -> None:
    import_or_skip("nemo_automodel.components.datasets.llm.megatron.indexed_dataset")


@pytest.mark.parametrize("name", ["pretrained", "wide"])
def test_the_reader_returns_every_document(name: str, tmp_path, request) -> None:
    dataset = request.getfixturevalue(name)
    made = export(dataset.directory, "automodel", tmp_path / "e", ExportOptions(), check=True)
    assert made.checked is not None
    assert made.checked.reader.startswith("nemo-automodel ")
    assert f"{dataset.n_tokens:,} tokens" in made.checked.compared
