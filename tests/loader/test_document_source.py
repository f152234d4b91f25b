"""Documents as samples: every document once, ids and mask as the dataset has them."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.loader.naive import check_sample, naive
from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError, VerifyError
from tokmill.loader import DocumentSource, documents


def test_documents_are_those_of_the_dataset(any_dataset: Dataset) -> None:
    source = documents(any_dataset.directory)
    expected = naive(any_dataset)
    assert len(source) == len(expected.documents) > 20
    together = source.__getitems__(range(len(source)))
    for i, ids in enumerate(expected.documents):
        mask = {"mask": expected.masks[i]} if any_dataset.kind == "sft" else {}
        check_sample(source[i], input_ids=ids, **mask)
        check_sample(together[i], input_ids=ids, **mask)


def test_a_document_that_is_not_there_is_an_index_error(pretrained: Dataset) -> None:
    source = documents(pretrained)
    for wrong in (len(source), -len(source) - 1):
        with pytest.raises(IndexError, match=f"no sample {wrong}; train has {len(source):,}"):
            source[wrong]
    with pytest.raises(IndexError):
        source.__getitems__([0, len(source), 1])
    with pytest.raises(TypeError):
        source["0"]  # type: ignore[index]
    for no_numbers in ([0.5, 1.0], ["1"], np.arange(len(source)) < 3):
        with pytest.raises(TypeError, match="numbers of samples are integers"):
            source.__getitems__(no_numbers)  # type: ignore[arg-type]
    with pytest.raises(IndexError):
        source.__getitems__([1 << 64])
    with pytest.raises(IndexError):
        source.__getitems__(np.array([(1 << 64) - 1], np.uint64))  # type: ignore[arg-type]
    assert len(list(source)) == len(source)


def test_a_split_that_is_empty_or_unknown_is_refused(wide: Dataset, pretrained: Dataset) -> None:
    with pytest.raises(UsageError, match=r"no documents in val; it has train"):
        documents(wide.directory, split="val")
    with pytest.raises(UsageError, match=r"no documents in train; it has val"):
        documents(pretrained.split("val"))
    with pytest.raises(UsageError, match=r"expected one of train, val; found 'test'"):
        documents(wide.directory, split="test")


def test_what_is_no_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a tokmill dataset"):
        documents(tmp_path)
    with pytest.raises(UsageError, match="expected a path, found ''"):
        documents("")
    with pytest.raises(UsageError, match="expected a path or an open dataset, found 3"):
        documents(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^s3://bucket/out: a dataset in a store is read through"):
        documents("s3://bucket/out")


def test_weights_are_part_of_a_sample(make_sft) -> None:
    directory, _ = make_sft(weight=0.5)
    source = documents(directory)
    check_sample(
        source[0],
        input_ids=[1, 7, 8, 3],
        mask=np.array([0, 0, 1, 1], np.uint8),
        weights=np.array([0, 0, 0.5, 0.5], np.float32),
    )


def test_a_pickled_source_is_the_path_of_the_dataset(pretrained: Dataset) -> None:
    source = documents(pretrained, split="val")
    data = pickle.dumps(source)
    assert len(data) < 400
    copy = pickle.loads(data)
    assert isinstance(copy, DocumentSource)
    assert copy.fingerprint == source.fingerprint
    check_sample(copy[3], **source[3])


def test_a_pickled_source_does_not_open_another_dataset(make_dataset, tmp_path: Path) -> None:
    directory, _ = make_dataset()
    source = documents(directory)
    data = pickle.dumps(source)
    shutil.move(directory, tmp_path / "old")
    make_dataset({"train-0000000-0000": [[1, 2]]})
    with pytest.raises(VerifyError, match="replaced after it was opened"):
        pickle.loads(data)
    assert documents(tmp_path / "old").fingerprint == source.fingerprint


@pytest.mark.parametrize("ending", ["bin", "idx", "mask"])
def test_a_missing_file_is_one_line(make_sft, ending: str) -> None:
    directory, _ = make_sft()
    (directory / f"train-0000000-0000.{ending}").unlink()
    source = documents(directory)
    check_sample(source[3], input_ids=[1, 11, 12, 13, 3], mask=np.array([0, 1, 0, 1, 1], np.uint8))
    with pytest.raises(VerifyError, match=rf"train-0000000-0000\.{ending}: .*No such file") as info:
        source[0]
    assert "\n" not in str(info.value)


@pytest.mark.parametrize("ending", ["bin", "mask", "idx"])
def test_a_file_of_another_size_is_one_line(make_sft, ending: str) -> None:
    directory, _ = make_sft()
    path = directory / f"train-0000000-0001.{ending}"
    path.chmod(0o644)
    with path.open("ab") as file:
        file.write(b"\0\0")
    with pytest.raises(VerifyError, match=rf"train-0000000-0001\.{ending}: \d+ bytes"):
        documents(directory)[3]


def test_an_index_with_other_documents_is_one_line(make_dataset) -> None:
    directory, _ = make_dataset()
    path = directory / "train-0000000-0001.idx"
    path.unlink()
    (directory / "val-0000000-0000.idx").rename(path)
    with pytest.raises(VerifyError, match=r"1 document of 2 bytes a token, .* says 2 of 2"):
        documents(directory)[2]


def test_a_file_that_is_cut_while_it_is_read_is_one_line(make_dataset) -> None:
    directory, _ = make_dataset()
    source = documents(directory)
    check_sample(source[0], input_ids=[1, 7, 8, 2])
    path = directory / "train-0000000-0000.bin"
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.truncate(5)
    with pytest.raises(VerifyError, match=r"cut while it was read: 5 of 8 bytes at 0"):
        source[0]
