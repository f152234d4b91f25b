"""Masks beside Megatron's tokens, as exports and datasets write them, become masks of samples."""

from __future__ import annotations

from pathlib import Path

import pytest

import tokmill
from tests.trainers.importing.conftest import EOS, ids, write_megatron
from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError, VerifyError

DOCUMENTS = [[5, 6, 7, EOS], [8, 9], [9, 10, 11, 12, 13, EOS]]
MASKS = [[0, 0, 1, 1], [0, 1], [0, 1, 0, 1, 0, 1]]


def write_twins(folder: Path, name: str = "a", dtype: str = "<u2", **options) -> Path:
    """Write tokens and masks with the same sequences; return the prefix of the tokens."""
    folder.mkdir(exist_ok=True)
    write_megatron(folder / f"{name}_mask", MASKS, dtype="u1", **options)
    return write_megatron(folder / name, DOCUMENTS, dtype=dtype, **options)


def masks(dataset: Dataset) -> list[list[int]]:
    """Return the masks of all samples."""
    return [dataset.mask(i).tolist() for i in range(len(dataset))]


@pytest.mark.usefixtures("block_tokens")
@pytest.mark.parametrize("name", ["a", "a.v1", "a b*é", "x_mask"])
@pytest.mark.parametrize("is_folder", [True, False])
def test_a_twin_is_the_mask_of_its_tokens(bring, tmp_path, name: str, is_folder: bool) -> None:
    prefix = write_twins(tmp_path / "in", name, dtype="<i4")
    made = bring(tmp_path / "in" if is_folder else prefix, "megatron")
    assert (made.kind, made.manifest["dtype"]) == ("sft", "uint32")
    assert (ids(made), masks(made)) == (DOCUMENTS, MASKS)


@pytest.mark.usefixtures("block_tokens")
def test_masks_follow_the_pointers_and_documents_of_their_tokens(bring, tmp_path) -> None:
    prefix = write_twins(tmp_path / "in", order=[2, 0, 1], documents=[0, 2])
    made = bring(prefix, "megatron")
    assert ids(made) == [[*DOCUMENTS[0], *DOCUMENTS[1]], DOCUMENTS[2]]
    assert masks(made) == [[*MASKS[0], *MASKS[1]], MASKS[2]]


@pytest.mark.usefixtures("block_tokens")
def test_a_sidecar_is_the_mask_of_its_tokens(bring, tmp_path) -> None:
    prefix = write_megatron(tmp_path / "a", DOCUMENTS, order=[1, 0, 2])
    (tmp_path / "a.mask").write_bytes(bytes([*MASKS[1], *MASKS[0], *MASKS[2]]))
    made = bring(prefix, "megatron")
    assert (ids(made), masks(made)) == (DOCUMENTS, MASKS)


@pytest.mark.parametrize("kind", ["chats", "unpacked"])
@pytest.mark.parametrize("merge", [False, True])
def test_an_export_comes_back_and_goes_out_with_the_same_bytes(
    kind: str, merge: bool, request, bring, tmp_path
) -> None:
    dataset: Dataset = request.getfixturevalue(kind)
    dataset.export("megatron", tmp_path / "one", merge=merge)
    val = [tmp_path / "one" / "val"] if merge else []
    made = bring(tmp_path / "one" / ("train" if merge else ""), "megatron", dataset, val=val)
    for split in ("train", "val"):
        assert ids(made.split(split)) == ids(dataset.split(split))
        assert masks(made.split(split)) == masks(dataset.split(split))
    made.export("megatron", tmp_path / "two", merge=merge)
    assert bodies(tmp_path / "two") == bodies(tmp_path / "one")
    window = next(iter(tokmill.loader.windows(made.directory, length=64, shift=False)))
    assert (window["labels"] != -100).any()


def bodies(export: Path) -> list[bytes]:
    """Return the bytes of all files but the record, in the order of their names."""
    paths = sorted(path for path in export.rglob("*") if path.suffix in (".bin", ".idx"))
    return [path.read_bytes() for path in paths]


def test_the_files_of_a_dataset_are_its_splits_with_masks(chats: Dataset, bring) -> None:
    made = bring(chats.directory, "megatron", chats)
    for split in ("train", "val"):
        assert ids(made.split(split)) == ids(chats.split(split))
        assert masks(made.split(split)) == masks(chats.split(split))


def test_tokens_with_and_without_masks_are_refused_together(bring, tmp_path) -> None:
    write_twins(tmp_path / "in")
    write_megatron(tmp_path / "in" / "b", [[5, EOS]])
    with pytest.raises(UsageError, match=r"b\.bin: has no mask beside it, and other files have"):
        bring(tmp_path / "in", "megatron")


def test_a_pair_with_two_masks_is_refused(bring, tmp_path) -> None:
    prefix = write_twins(tmp_path / "in")
    Path(f"{prefix}.mask").write_bytes(bytes(12))
    with pytest.raises(UsageError, match=r"a has another mask, a\.mask: move one away"):
        bring(prefix, "megatron")


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("lengths", r"a_mask\.idx: a sequence stands elsewhere than its mask"),
        ("pointers", r"a_mask\.idx: a sequence stands elsewhere than its mask"),
        ("documents", r"a_mask\.idx: has other sequences than a\.idx"),
        ("type", r"a_mask\.idx: holds no bytes, so it is no mask of a"),
        ("cut", r"a_mask\.bin: 11 bytes, expected one for each of the 12 tokens of a\.bin"),
        ("missing", r"a_mask\.bin: expected beside a_mask\.idx"),
        ("values", r"a_mask\.bin: holds 3, expected 0 or 1"),
    ],
)
def test_a_twin_that_does_not_fit_is_refused(bring, tmp_path, what: str, message: str) -> None:
    prefix = write_twins(tmp_path / "in")
    twin = tmp_path / "in" / "a_mask"
    body = Path(f"{twin}.bin")
    if what == "lengths":
        write_megatron(twin, [MASKS[1], MASKS[0], MASKS[2]], dtype="u1")
    elif what == "pointers":
        write_megatron(twin, MASKS, order=[1, 0, 2], dtype="u1")
    elif what == "documents":
        write_megatron(twin, MASKS, documents=[0, 2], dtype="u1")
    elif what == "type":
        write_megatron(twin, MASKS)
    elif what == "missing":
        body.unlink()
    else:
        body.write_bytes(body.read_bytes()[:-1] if what == "cut" else bytes([0, 0, 3] * 4))
    with pytest.raises((UsageError, VerifyError), match=message):
        bring(prefix, "megatron")
    assert not (tmp_path / "out").exists()


def test_packed_rows_of_a_dataset_are_not_read_a_second_time(bring, tmp_path) -> None:
    folder = tmp_path / "in"
    for name in ("train-0000000-0000", "packed-train-0000"):
        prefix = write_twins(folder, name)
        Path(f"{prefix}_mask.bin").rename(f"{prefix}.mask")
        Path(f"{prefix}_mask.idx").unlink()
    assert ids(bring(folder, "megatron")) == DOCUMENTS
    packed = bring(folder / "packed-train-0000", "megatron", output="rows")
    assert ids(packed) == DOCUMENTS
