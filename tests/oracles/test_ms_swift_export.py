"""ms-swift's own loader and collator read every row of an export."""

from __future__ import annotations

import pytest

from tests.oracles.conftest import import_or_skip
from tokmill.trainers.export import export
from tokmill.trainers.options import ExportOptions

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def reader() -> None:
    import_or_skip("datasets", "swift.pipelines.utils", "swift.template.base")


@pytest.mark.parametrize("name", ["chats", "unpacked", "pieces", "wide"])
def test_the_loader_and_the_collator_return_every_row(name: str, tmp_path, request) -> None:
    dataset = request.getfixturevalue(name)
    made = export(dataset.directory, "ms-swift", tmp_path / "e", ExportOptions(), check=True)
    assert made.checked is not None
    assert made.checked.reader.startswith("ms-swift ")
    assert f"{dataset.n_tokens:,} tokens" in made.checked.compared


def test_ms_swift_packs_rows_by_their_lengths(unpacked, tmp_path) -> None:
    """With `packing true` it reads nothing but `lengths`, and returns the rows of each pack."""
    pytest.importorskip("binpacking", reason="the oracle is not installed: make oracles")
    import datasets
    from swift.dataset.packing import calculate_matched_group

    export(unpacked.directory, "ms-swift", tmp_path / "e", ExportOptions())
    rows = datasets.load_from_disk(str(tmp_path / "e"))["train"]
    numbered = [(i, sum(lengths)) for i, lengths in enumerate(rows["lengths"])]
    packs, _ = calculate_matched_group(numbered, 8192)
    assert sorted(i for pack in packs for i, _ in pack) == list(range(len(rows)))
    assert sum(len(rows[i]["input_ids"]) for pack in packs for i, _ in pack) == sum(
        n for _, n in numbered
    )
