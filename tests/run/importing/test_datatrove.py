"""Files of datatrove become a dataset; with `.loss`, a dataset of samples with masks."""

from __future__ import annotations

import pytest

from tests.run.importing.conftest import EOS, ids, write_datatrove
from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError, VerifyError

DOCUMENTS = [[5, 6, 7, EOS], [8, EOS], [9, 10, 11, 12, 13, EOS]]
MASKS = [[0, 0, 1, 1], [0, 1], [0, 1, 0, 1, 0, 1]]


@pytest.mark.usefixtures("block_tokens")
@pytest.mark.parametrize(("dtype", "name"), [("<u2", "uint16"), ("<u4", "uint32")])
def test_the_size_of_a_token_follows_from_the_index(bring, tmp_path, dtype, name) -> None:
    made = bring(write_datatrove(tmp_path / "a.ds", DOCUMENTS, dtype=dtype), "datatrove")
    assert ids(made) == DOCUMENTS
    assert (made.kind, made.manifest["dtype"]) == ("pretrain", name)


@pytest.mark.usefixtures("block_tokens")
def test_loss_makes_samples_with_masks(bring, tmp_path) -> None:
    made = bring(write_datatrove(tmp_path / "a.ds", DOCUMENTS, MASKS), "datatrove")
    assert made.kind == "sft"
    assert ids(made) == DOCUMENTS
    assert [made.mask(i).tolist() for i in range(3)] == MASKS
    assert made.manifest["totals"]["trained_tokens"] == 6
    assert made.manifest["mask"]["alignment"] == "target"


@pytest.mark.usefixtures("block_tokens")
def test_samples_that_train_nothing_are_dropped_and_first_tokens_are_no_targets(
    bring, tmp_path, caplog
) -> None:
    masks = [[1, 0, 1, 1], [0, 0], [1, 1, 0, 1, 0, 1]]
    made = bring(write_datatrove(tmp_path / "a.ds", DOCUMENTS, masks), "datatrove")
    assert ids(made) == [DOCUMENTS[0], DOCUMENTS[2]]
    assert [made.mask(i).tolist() for i in range(2)] == [[0, 0, 1, 1], [0, 1, 0, 1, 0, 1]]
    assert made.manifest["totals"]["drops"] == {"no trained token": 1}
    assert "2 samples had a target at the first token" in caplog.text


def test_files_with_and_without_loss_are_refused_together(bring, tmp_path) -> None:
    write_datatrove(tmp_path / "a.ds", DOCUMENTS, MASKS)
    write_datatrove(tmp_path / "b.ds", DOCUMENTS)
    with pytest.raises(UsageError, match=r"b\.ds: has no mask beside it"):
        bring(tmp_path, "datatrove")


@pytest.mark.parametrize("ending", ["ds", "ds.index", "ds.loss"])
def test_a_file_that_is_missing_or_cut_is_refused(bring, tmp_path, ending: str) -> None:
    write_datatrove(tmp_path / "a.ds", DOCUMENTS, MASKS)
    path = tmp_path / f"a.{ending}"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises((UsageError, VerifyError), match=r"a\.ds"):
        bring(tmp_path / "a.ds", "datatrove")
    path.unlink()
    if ending != "ds.loss":
        with pytest.raises(UsageError, match=r"a\.ds"):
            bring(tmp_path / "a.ds", "datatrove")


def test_a_mask_of_other_values_is_refused(bring, tmp_path) -> None:
    write_datatrove(tmp_path / "a.ds", DOCUMENTS[:1], [[0, 2, 1, 1]])
    with pytest.raises(VerifyError, match="holds 2, expected 0 or 1"):
        bring(tmp_path / "a.ds", "datatrove")


@pytest.mark.parametrize("kind", ["pretrained", "unpacked"])
def test_an_export_comes_back_with_the_same_documents(kind: str, request, bring, tmp_path) -> None:
    dataset: Dataset = request.getfixturevalue(kind)
    dataset.export("datatrove", tmp_path / "ds")
    made = bring(tmp_path / "ds", "datatrove", dataset)
    for split in ("train", "val"):
        ours, theirs = made.split(split), dataset.split(split)
        assert ids(ours) == ids(theirs)
        if kind == "unpacked":
            for i in range(len(theirs)):
                assert ours.mask(i).tolist() == theirs.mask(i).tolist()
