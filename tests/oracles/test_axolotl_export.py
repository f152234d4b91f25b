"""axolotl's own collator reads every row of an export, and its datasets can be merged with it."""

from __future__ import annotations

import pytest

from tests.oracles.conftest import import_or_skip
from tokmill.trainers.export import export
from tokmill.trainers.options import ExportOptions

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def reader() -> None:
    import_or_skip("datasets", "axolotl.utils.collators.batching")


@pytest.mark.parametrize("name", ["chats", "wide"])
def test_the_collator_returns_every_document(name: str, tmp_path, request) -> None:
    dataset = request.getfixturevalue(name)
    made = export(dataset.directory, "axolotl", tmp_path / "e", ExportOptions(), check=True)
    assert made.checked is not None
    assert made.checked.reader.startswith("axolotl ")
    assert made.checked.compared.startswith(f"{len(dataset):,} documents, ")


def test_the_collator_returns_every_piece(pieces, tmp_path) -> None:
    made = export(pieces.directory, "axolotl", tmp_path / "e", ExportOptions(), check=True)
    assert made.checked is not None
    n = sum(entry["pieces"] for entry in pieces.manifest["packs"].values())
    assert made.checked.compared.startswith(f"{n:,} pieces, {pieces.n_tokens:,} tokens")


def test_rows_can_be_merged_with_a_dataset_that_was_tokenized_elsewhere(chats, tmp_path) -> None:
    import datasets

    export(chats.directory, "axolotl", tmp_path / "e", ExportOptions())
    ours = datasets.load_from_disk(str(tmp_path / "e"))["train"]
    text = datasets.Dataset.from_dict({"text": ["a", "b"]})
    row = {"input_ids": [5, 6], "attention_mask": [1, 1], "labels": [-100, 6]}
    theirs = text.map(lambda _: row, remove_columns="text")
    merged = datasets.concatenate_datasets([ours, theirs])
    assert merged[len(ours)] == row
    assert merged.features == ours.features
