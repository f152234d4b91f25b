from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.errors import TokenizerError
from tokmill.recipes.bos_eos import add_bos_eos
from tokmill.values import TokenBatch

U2, U4 = np.dtype("<u2"), np.dtype("<u4")

DOCUMENTS = st.lists(st.lists(st.integers(0, 65_535), max_size=4), max_size=6)


def batch_of(documents: list[list[int]]) -> TokenBatch:
    offsets = np.cumsum([0] + [len(document) for document in documents])
    ids = np.array([token for document in documents for token in document], np.uint32)
    return TokenBatch(ids, offsets.astype(np.int64))


def test_the_example_of_the_docstring_holds():
    tokens, offsets = add_bos_eos(batch_of([[7, 8], [9]]), 2, None, U2)
    assert tokens.tolist() == [7, 8, 2, 9, 2]
    assert offsets.tolist() == [0, 3, 5]


def test_bos_stands_before_every_document_and_eos_after_it():
    tokens, offsets = add_bos_eos(batch_of([[7], [], [8, 9]]), 2, 1, U4)
    assert tokens.tolist() == [1, 7, 2, 1, 2, 1, 8, 9, 2]
    assert offsets.tolist() == [0, 3, 5, 9]
    assert tokens.dtype == U4


def test_no_documents_give_no_tokens():
    tokens, offsets = add_bos_eos(batch_of([]), 2, 1, U2)
    assert (tokens.tolist(), offsets.tolist()) == ([], [0])


@given(documents=DOCUMENTS, bos_id=st.none() | st.integers(0, 9), dtype=st.sampled_from([U2, U4]))
def test_any_documents_get_bos_and_eos_as_in_a_loop(documents, bos_id, dtype):
    tokens, offsets = add_bos_eos(batch_of(documents), 3, bos_id, dtype)
    before = [] if bos_id is None else [bos_id]
    expected = [before + document + [3] for document in documents]
    assert tokens.tolist() == [token for document in expected for token in document]
    assert np.diff(offsets).tolist() == [len(document) for document in expected]
    assert (tokens.dtype, offsets.dtype) == (dtype, np.int64)


@pytest.mark.parametrize("too_large", [65_536, 70_000, 2**32 - 1])
def test_an_id_that_does_not_fit_is_an_error_and_never_another_id(too_large):
    with pytest.raises(TokenizerError) as caught:
        add_bos_eos(batch_of([[7], [too_large]]), 2, None, U2)  # 70,000 would be 4,464
    assert str(caught.value) == f"token id {too_large} does not fit uint16"


@pytest.mark.parametrize(("eos_id", "bos_id"), [(70_000, None), (2, 70_000)])
def test_a_bos_or_eos_that_does_not_fit_is_an_error_too(eos_id, bos_id):
    with pytest.raises(TokenizerError, match=r"^token id 70000 does not fit uint16$"):
        add_bos_eos(batch_of([[7]]), eos_id, bos_id, U2)


def test_the_largest_id_of_each_dtype_fits():
    assert add_bos_eos(batch_of([[65_535]]), 2, None, U2)[0].tolist() == [65_535, 2]
    assert add_bos_eos(batch_of([[2**32 - 1]]), 2, None, U4)[0].tolist() == [2**32 - 1, 2]
