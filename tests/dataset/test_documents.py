"""Spans are read from any number of shards with few open files, by several threads at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokmill.dataset import documents
from tokmill.dataset.documents import FEWEST_OPEN, Documents, ShardFiles, Spans
from tokmill.errors import VerifyError

N_SHARDS = 40
DESCRIPTORS = Path("/proc/self/fd")


@pytest.fixture
def files(make_dataset, monkeypatch) -> Iterator[ShardFiles]:
    """Forty shards of two documents, in a process that may have few open files."""
    shards = {f"train-{i:07d}-0000": [[i + 10, 2], [i + 10, i + 11, 2]] for i in range(N_SHARDS)}
    directory, manifest = make_dataset(shards)
    monkeypatch.setattr(documents, "_most_descriptors", lambda: 4)
    documents.close_files()
    yield ShardFiles(Documents(directory, manifest, "train"))
    documents.close_files()


def read(files: ShardFiles, numbers: list[int]) -> list[int]:
    spans = files.document_spans(np.array(numbers, np.int64))
    into = np.empty(int(spans.lengths.sum()), "<u2")
    files.read(spans, "bin", into)
    return into.tolist()


def expected(numbers: list[int]) -> list[int]:
    return [
        token
        for number in numbers
        for token in ([number // 2 + 10, 2], [number // 2 + 10, number // 2 + 11, 2])[number % 2]
    ]


def test_documents_of_all_shards_are_read_in_the_order_asked_for(files: ShardFiles) -> None:
    numbers = np.random.default_rng(0).permutation(2 * N_SHARDS).tolist()
    assert read(files, numbers) == expected(numbers)
    assert read(files, []) == []


@pytest.mark.skipif(not DESCRIPTORS.exists(), reason="needs Linux's list of open files")
def test_few_files_stay_open(files: ShardFiles) -> None:
    gc.collect()
    before = len(list(DESCRIPTORS.iterdir()))
    for _ in range(3):
        read(files, list(range(2 * N_SHARDS)))
    assert 0 < len(list(DESCRIPTORS.iterdir())) - before <= 2 * FEWEST_OPEN


def test_threads_do_not_close_the_files_of_each_other(files: ShardFiles) -> None:
    def some(seed: int) -> bool:
        numbers = np.random.default_rng(seed).integers(0, 2 * N_SHARDS, 300).tolist()
        return read(files, numbers) == expected(numbers)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(some, range(60)))


@pytest.mark.parametrize("number", [-1, 2 * N_SHARDS])
def test_a_document_that_is_not_there_is_an_index_error(files: ShardFiles, number: int) -> None:
    with pytest.raises(IndexError, match="no such document; it holds 80"):
        files.document_spans(np.array([0, number]))


def test_spans_fill_their_targets_and_nothing_else(files: ShardFiles) -> None:
    spans = Spans(*(np.array(column) for column in ([3, 1], [1, 0], [2, 1], [5, 0])))
    into = np.full(8, 99, "<u2")
    files.read(spans, "bin", into)
    assert into.tolist() == [11, 99, 99, 99, 99, 2, 13, 99]


def read_none(files: ShardFiles) -> None:
    files.document_spans(np.empty(0, np.int64))


# Parts: the manifest of an open dataset is looked at now and then, and read when it changed


def test_the_manifest_is_read_again_only_when_its_file_is_another(
    make_dataset, monkeypatch
) -> None:
    directory, manifest = make_dataset()
    read: list[Path] = []
    own: Any = documents.read_manifest
    monkeypatch.setattr(documents, "read_manifest", lambda path: read.append(path) or own(path))
    files = ShardFiles(Documents(directory, manifest, "train"))
    for _ in range(3):
        files.check()
    assert read == [directory]
    (directory / "manifest.json").touch()
    files.check()
    assert read == [directory, directory]


def test_a_look_is_taken_once_a_second(make_dataset, monkeypatch) -> None:
    directory, manifest = make_dataset()
    now = [10.0]
    monkeypatch.setattr(documents.time, "monotonic", lambda: now[0])
    files = ShardFiles(Documents(directory, manifest, "train"))
    read_none(files)
    (directory / "manifest.json").unlink()
    now[0] += 0.99
    read_none(files)
    now[0] += 0.02
    with pytest.raises(VerifyError, match="moved or removed"):
        read_none(files)
