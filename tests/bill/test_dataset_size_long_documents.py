"""Documents that are longer than the context."""

from __future__ import annotations

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
