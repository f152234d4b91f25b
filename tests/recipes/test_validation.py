from __future__ import annotations

import pyarrow as pa
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tokmill.recipes.validation import validation_documents


def strings(texts: list[str]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


@given(st.lists(st.text(max_size=5), max_size=8), st.floats(0, 1))
def test_validation_is_decided_by_the_hash_of_the_text_alone(texts, fraction):
    decided = validation_documents(strings(texts), fraction)
    expected = [xxhash.xxh3_64(text.encode()).intdigest() / 2**64 < fraction for text in texts]
    assert decided.tolist() == expected
    sliced = validation_documents(strings(["x", *texts, "y"]).slice(1, len(texts)), fraction)
    assert sliced.tolist() == expected


def test_the_fractions_0_and_1_are_exact():
    texts = strings([str(i) for i in range(1000)])
    assert not validation_documents(texts, 0.0).any()
    assert validation_documents(texts, 1.0).all()
    assert 60 < validation_documents(texts, 0.1).sum() < 140
    assert validation_documents(strings([]), 0.5).tolist() == []
