"""Documents that are longer than the context."""

from __future__ import annotations

from math import log
from typing import Any

import pytest

from tokmill.bill.dataset_size import DatasetSize, long_documents


def a_dataset(tokens: int = 1000, documents: int = 10, **more: Any) -> DatasetSize:
    return DatasetSize("pretrain", tokens, documents, 2, **more)


def test_documents_of_longer_classes_are_longer_than_the_context():
    lengths = a_dataset(tokens=70, length_histogram=(0, 0, 4, 0, 2))  # 4..7 and 16..31 tokens
    found = long_documents(lengths, 15)
    assert (found.least, found.documents, found.most) == (2, 2, 2)
    assert found.share == pytest.approx(2 / 6)
    assert 0 < found.tokens_beyond == pytest.approx(found.tokens - 2 * 15, abs=1)
    assert found.tokens == pytest.approx(70 * 2 * 22.68 / (2 * 22.68 + 4 * 5.36), abs=1)


def test_a_class_on_both_sides_of_the_context_gives_bounds():
    found = long_documents(a_dataset(tokens=2300, length_histogram=(0, 0, 0, 0, 100)), 23)
    assert (found.least, found.most) == (0, 100)
    assert found.documents == 42  # log2(32 / 24) of 100
    mean = (31 - 16) / log(31 / 16)
    assert found.tokens == round(2300 * log(32 / 24, 2) * (31 - 24) / log(31 / 24) / mean)


def test_a_document_as_long_as_the_context_is_not_longer():
    found = long_documents(a_dataset(tokens=160, length_histogram=(0, 0, 0, 0, 10)), 16)
    assert (found.least, found.most) == (0, 10)


def test_no_document_is_longer_than_a_large_context():
    found = long_documents(a_dataset(tokens=50, length_histogram=(5, 3, 2)), 7)
    assert (found.most, found.documents, found.share, found.tokens) == (0, 0, 0.0, 0)


def test_an_empty_dataset_has_no_long_documents():
    assert long_documents(a_dataset(0, 0), 8).share == 0.0
