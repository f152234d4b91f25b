"""Exact lengths: bins of powers of two, and what stands past a context, from the mapped indices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.errors import VerifyError
from tokmill.page.report import lengths as module
from tokmill.page.report.lengths import CONTEXTS, Lengths, read_lengths


def found_of(*lengths: int) -> Lengths:
    found = Lengths()
    found.add(np.array(lengths, np.int32))
    return found


@given(st.lists(st.integers(1, 2**31 - 1), max_size=30))
def test_every_document_is_in_the_bin_of_its_highest_bit(lengths):
    found = found_of(*lengths)
    for i in range(module.N_BINS):
        inside = [length for length in lengths if length.bit_length() - 1 == i]
        assert found.documents[i] == len(inside)
        assert found.tokens[i] == sum(inside)
    assert found.longest == max(lengths, default=0)


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_document_as_long_as_a_context_is_not_longer(context):
    assert found_of(context).longer[context] == 0
    one = found_of(context + 1, context, 1)
    assert (one.longer[context], one.beyond[context]) == (1, 1)


def test_the_chunks_in_which_an_index_is_read_change_nothing(pretrained, monkeypatch):
    whole = read_lengths(pretrained.directory, pretrained.manifest)
    monkeypatch.setattr(module, "_CHUNK_DOCUMENTS", 7)
    pieces = read_lengths(pretrained.directory, pretrained.manifest)
    assert whole.documents.tolist() == pieces.documents.tolist()
    assert whole.tokens.tolist() == pieces.tokens.tolist()
    assert (whole.longest, whole.longer, whole.beyond) == (
        pieces.longest, pieces.longer, pieces.beyond
    )  # fmt: skip


def test_an_index_of_other_documents_is_refused(pretrained):
    shard = {**pretrained.manifest["shards"][0], "documents": 5}
    with pytest.raises(VerifyError, match="the manifest says 5"):
        read_lengths(pretrained.directory, {"shards": [shard]})
