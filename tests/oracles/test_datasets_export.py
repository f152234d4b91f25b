"""`datasets.load_from_disk` reads what was exported, and takes it for its own."""

from __future__ import annotations

from typing import Any

import pytest

from tokmill.trainers.export import export
from tokmill.trainers.options import ExportOptions

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def datasets() -> Any:
    """Import it in the worker that runs these tests alone: that takes seconds."""
    return pytest.importorskip("datasets", reason="the oracle is not installed: make oracles")


@pytest.mark.parametrize("name", ["pretrained", "single", "wide", "chats", "unpacked"])
def test_every_row_is_a_document(name: str, tmp_path, request) -> None:
    dataset = request.getfixturevalue(name)
    made = export(dataset.directory, "datasets", tmp_path / "e", ExportOptions(), check=True)
    assert made.checked is not None
    assert made.checked.compared.startswith(f"{len(dataset):,} documents, ")


def test_every_row_is_a_pack_of_pieces(pieces, tmp_path) -> None:
    made = export(pieces.directory, "datasets", tmp_path / "e", ExportOptions(), check=True)
    assert made.checked is not None
    n_rows = sum(entry["rows"] for entry in pieces.manifest["packs"].values())
    assert made.checked.compared.endswith(f"{pieces.n_tokens:,} tokens in {n_rows:,} packs")


def test_a_directory_saved_again_by_datasets_has_the_same_rows(chats, tmp_path, datasets) -> None:
    export(chats.directory, "datasets", tmp_path / "e", ExportOptions())
    ours = datasets.load_from_disk(str(tmp_path / "e"))
    ours.save_to_disk(str(tmp_path / "again"))
    theirs = datasets.load_from_disk(str(tmp_path / "again"))
    for split in ("train", "val"):
        assert theirs[split][:] == ours[split][:]
        assert theirs[split].features == ours[split].features
        once_more = datasets.load_from_disk(str(tmp_path / "e"))
        assert ours[split]._fingerprint == once_more[split]._fingerprint
        assert {one.feature.dtype for one in ours[split].features.values()} == {"int32"}
