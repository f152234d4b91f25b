"""Masks beside Megatron's tokens become masks of samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run.importing.conftest import EOS, ids, write_megatron
from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError, VerifyError

DOCUMENTS = [[5, 6, 7, EOS], [8, 9], [9, 10, 11, 12, 13, EOS]]
MASKS = [[0, 0, 1, 1], [0, 1], [0, 1, 0, 1, 0, 1]]


def write_masked(folder: Path, name: str = "a", dtype: str = "<u2", **options) -> Path:
    """Write tokens and, in the order of their bytes, a mask; return the prefix."""
    folder.mkdir(exist_ok=True)
    order = options.get("order", range(len(MASKS)))
    (folder / f"{name}.mask").write_bytes(bytes(flag for i in order for flag in MASKS[i]))
    return write_megatron(folder / name, DOCUMENTS, dtype=dtype, **options)


def masks(dataset: Dataset) -> list[list[int]]:
    """Return the masks of all samples."""
    return [dataset.mask(i).tolist() for i in range(len(dataset))]


@pytest.mark.usefixtures("block_tokens")
@pytest.mark.parametrize("name", ["a", "a b*é", "x_mask"])
@pytest.mark.parametrize("is_folder", [True, False])
def test_a_sidecar_is_the_mask_of_its_tokens(bring, tmp_path, name: str, is_folder: bool) -> None:
    prefix = write_masked(tmp_path / "in", name, dtype="<i4")
    made = bring(tmp_path / "in" if is_folder else prefix, "megatron")
    assert (made.kind, made.manifest["dtype"]) == ("sft", "uint32")
    assert (ids(made), masks(made)) == (DOCUMENTS, MASKS)


@pytest.mark.usefixtures("block_tokens")
def test_masks_follow_the_pointers_and_documents_of_their_tokens(bring, tmp_path) -> None:
    prefix = write_masked(tmp_path / "in", order=[2, 0, 1], documents=[0, 2])
    made = bring(prefix, "megatron")
    assert ids(made) == [[*DOCUMENTS[0], *DOCUMENTS[1]], DOCUMENTS[2]]
    assert masks(made) == [[*MASKS[0], *MASKS[1]], MASKS[2]]


@pytest.mark.parametrize("merge", [False, True])
def test_an_export_whose_masks_are_renamed_comes_back(chats, bring, tmp_path, merge: bool) -> None:
    chats.export("megatron", tmp_path / "e", merge=merge)
    with pytest.raises(UsageError, match=r"_mask\.idx: a mask: rename .*_mask\.bin to"):
        bring(tmp_path / "e" / ("" if merge else "train"), "megatron", chats)
    for path in [*(tmp_path / "e").rglob("*_mask.bin")]:
        path.rename(path.with_name(path.name.replace("_mask.bin", ".mask")))
        path.with_suffix(".idx").unlink()
    val = [tmp_path / "e" / "val"] if merge else []
    made = bring(tmp_path / "e" / ("train" if merge else ""), "megatron", chats, val=val)
    for split in ("train", "val"):
        assert ids(made.split(split)) == ids(chats.split(split))
        assert masks(made.split(split)) == masks(chats.split(split))


def test_the_files_of_a_dataset_are_its_splits_with_masks(chats: Dataset, bring) -> None:
    made = bring(chats.directory, "megatron", chats)
    for split in ("train", "val"):
        assert ids(made.split(split)) == ids(chats.split(split))
        assert masks(made.split(split)) == masks(chats.split(split))


def test_tokens_with_and_without_masks_are_refused_together(bring, tmp_path) -> None:
    write_masked(tmp_path / "in")
    write_megatron(tmp_path / "in" / "b", [[5, EOS]])
    with pytest.raises(UsageError, match=r"b\.bin: has no mask beside it, and other files have"):
        bring(tmp_path / "in", "megatron")


def test_eos_cannot_be_added_to_samples_which_may_end_with_any_token(bring, tmp_path) -> None:
    with pytest.raises(UsageError, match="--add-eos: samples with masks may end with any token"):
        bring(write_masked(tmp_path / "in"), "megatron", add_eos=True)
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (bytes(11), r"a\.mask: 11 bytes, expected one for each of the 12 tokens of a\.bin"),
        (bytes([0, 0, 3] * 4), r"a\.mask: holds 3, expected 0 or 1"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(bring, tmp_path, data: bytes, message: str) -> None:
    prefix = write_masked(tmp_path / "in")
    Path(f"{prefix}.mask").write_bytes(data)
    with pytest.raises(VerifyError, match=message):
        bring(prefix, "megatron")
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_packed_rows_of_a_dataset_are_not_read_a_second_time(bring, tmp_path) -> None:
    for name in ("train-0000000-0000", "packed-train-0000"):
        write_masked(tmp_path / "in", name)
    assert ids(bring(tmp_path / "in", "megatron")) == DOCUMENTS
    packed = bring(tmp_path / "in" / "packed-train-0000", "megatron", output="rows")
    assert ids(packed) == DOCUMENTS
