"""Statistics against plain counting: lengths, ids, equal documents, in any amount of memory."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library

from tests.fixtures.datasets import TOKENIZER
from tokmill.api.dataset import Dataset
from tokmill.dataset.counts import N_LENGTH_BINS
from tokmill.dataset.manifest import Manifest
from tokmill.errors import VerifyError
from tokmill.inspect import document_hashes
from tokmill.inspect import statistics as module
from tokmill.inspect.document_hashes import Duplicates
from tokmill.inspect.statistics import (
    CONTEXTS,
    Lengths,
    read_statistics,
)

EQUAL = {
    "train-0000000-0000": [[1, 7, 8, 2], [1, 9, 2], [1, 7, 8, 2], [1, 5, 2]],
    "val-0000000-0000": [[1, 9, 2], [1, 6, 2], [1, 6, 2], [1, 9, 2]],
    "train-0000000-0001": [[1, 7, 8, 2], [1, 11, 12, 13, 2], [1, 9, 2]],
}
"""Document 1 stands there four times, twice of them in val; 0 three times, 5 twice."""


def lengths_of(*lengths: int) -> Lengths:
    return Lengths.of([np.array(lengths, np.int32)])


@given(st.lists(st.integers(1, 2**31 - 1), max_size=30))
def test_every_document_is_in_the_bin_of_its_highest_bit(lengths: list[int]) -> None:
    counted = lengths_of(*lengths)
    for i in range(N_LENGTH_BINS):
        inside = [length for length in lengths if length.bit_length() - 1 == i]
        assert counted.documents[i] == len(inside)
        assert counted.tokens[i] == sum(inside)
    assert counted.longest == max(lengths, default=0)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 100))
def test_a_percentile_is_the_least_length_that_enough_documents_do_not_exceed(
    lengths: list[int], percent: int
) -> None:
    enough = (
        length
        for length in sorted(lengths)
        if 100 * sum(other <= length for other in lengths) >= percent * len(lengths)
    )
    assert lengths_of(*lengths).percentile(percent) == next(enough)


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_document_as_long_as_a_context_is_not_longer(context: int) -> None:
    assert lengths_of(context).longer(context) == 0
    three = lengths_of(context + 1, context, 1)
    assert (three.longer(context), three.beyond(context)) == (1, 1)


def test_ids_are_counted_as_a_plain_count_does(pretrained: Dataset, chats: Dataset) -> None:
    for dataset in (pretrained, chats):
        statistics = dataset.stats()
        expected = Counter(i for document in dataset for i in document.tolist())
        counts = statistics.id_counts
        assert {i: n for i, n in enumerate(counts.tolist()) if n} == dict(expected)
        most = [(named.id, named.count) for named in statistics.frequent]
        assert most == sorted(expected.items(), key=lambda row: (-row[1], row[0]))[:20]
        assert statistics.n_unused == len(counts) - len(expected)
        assert not {named.id for named in statistics.unused} & set(expected)
        assert [named.id for named in statistics.unused] == sorted(
            {named.id for named in statistics.unused}
        )


def test_texts_of_ids_are_those_of_the_reference_with_their_spaces(pretrained: Dataset) -> None:
    reference = Library.from_file(str(TOKENIZER / "tokenizer.json"))
    named = [*pretrained.stats().frequent, *pretrained.stats().unused]
    for id_, text in ((one.id, one.text) for one in named):
        expected = reference.decode([id_], skip_special_tokens=False)
        assert text == expected or "\ufffd" in expected, id_
    assert any(one.text.startswith(" ") and len(one.text) > 1 for one in named)


@pytest.mark.parametrize("kept", [1, 2, 3, 1 << 21])
def test_equal_documents_are_counted_whatever_is_kept_in_memory(
    make_dataset, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    directory, manifest = make_dataset(EQUAL)
    monkeypatch.setattr(document_hashes, "_KEPT_DOCUMENTS", kept)
    monkeypatch.setattr(module, "_CHUNK_TOKENS", 8)
    assert read_statistics(directory, Manifest.of(manifest, directory)).duplicates == Duplicates(
        documents=6, tokens=2 * 4 + 3 * 3 + 3, most=4, example=1, in_both_splits=2
    )


def test_samples_with_equal_ids_and_other_masks_are_not_equal(make_sft) -> None:
    samples = {
        "train-0000000-0000": [
            ([1, 7, 8, 3], [0, 0, 1, 1]),
            ([1, 7, 8, 3], [0, 1, 1, 1]),
            ([1, 7, 8, 3], [0, 0, 1, 1]),
        ]
    }
    directory, manifest = make_sft(samples)
    duplicates = read_statistics(directory, Manifest.of(manifest, directory)).duplicates
    assert (duplicates.documents, duplicates.most, duplicates.example) == (1, 2, 0)


@pytest.mark.parametrize("at_once", [1, 3, 1 << 20])
def test_the_prompt_of_a_sample_is_what_stands_before_its_first_trained_token(
    make_sft, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(module, "_CHUNK_TOKENS", at_once)
    samples = {
        "train-0000000-0000": [
            ([1, 7, 8, 3], [0, 0, 1, 1]),
            ([1, 7, 8, 9, 3], [0, 1, 0, 1, 1]),
        ],
        "train-0000000-0001": [([1, 7, 8, 9, 3], [0, 0, 0, 0, 1])],
    }
    directory, manifest = make_sft(samples)
    statistics = read_statistics(directory, Manifest.of(manifest, directory))
    assert statistics.prompts is not None
    assert (statistics.prompts.values.tolist(), statistics.prompts.counts.tolist()) == (
        [1, 2, 4],
        [1, 1, 1],
    )
    assert statistics.as_json()["prompts"]["longest"] == 4


def test_without_masks_there_are_no_prompts(pretrained: Dataset) -> None:
    assert pretrained.stats().prompts is None
    assert "prompts" not in pretrained.stats().as_json()


def test_an_id_outside_the_vocabulary_is_one_line(make_dataset) -> None:
    documents = {"train-0000000-0000": [[1, 4_000_000_000, 2]]}
    directory, manifest = make_dataset(documents, "uint32")
    with pytest.raises(VerifyError, match=r"000\.bin: id 4,000,000,000 is outside .* of 100; see"):
        read_statistics(directory, Manifest.of(manifest, directory))
