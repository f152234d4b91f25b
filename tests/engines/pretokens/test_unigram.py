from __future__ import annotations

from itertools import product

import pytest
from tokenizers.models import Unigram as LibraryUnigram

from tokmill.engines.pretokens.unigram import LONGEST_PART, Unigram

VOCAB = [("<unk>", 0.0), ("a", -1.0), ("b", -2.5), ("ab", -3.1), ("aba", -4.0), ("--", -3.0)]
LIBRARY = LibraryUnigram(VOCAB, 0, False)


@pytest.fixture
def unigram():
    return Unigram(VOCAB, 0)


def test_the_best_path_is_that_of_the_library(unigram):
    answers = 0
    for length in range(1, 7):
        for letters in product("abx", repeat=length):
            text = "".join(letters)
            ids = unigram.encode(text)
            answers += ids is not None
            assert ids in (None, [token.id for token in LIBRARY.tokenize(text)])
    assert answers > 900  # of 1092


def test_no_text_has_no_ids(unigram):
    assert unigram.encode("") == []


def test_a_run_of_unknown_characters_is_one_token(unigram):
    assert unigram.encode("xyaz") == [0, 1, 0]


def test_the_string_of_the_unknown_token_merges_with_unknown_characters(unigram):
    assert unigram.encode("x<unk>y") == [token.id for token in LIBRARY.tokenize("x<unk>y")] == [0]


def test_a_proper_prefix_of_a_token_is_unknown(unigram):
    assert unigram.encode("-") == [0]


def test_the_last_of_two_equal_tokens_counts():
    vocab = [*VOCAB, ("a", -0.5)]
    ids = [token.id for token in LibraryUnigram(vocab, 0, False).tokenize("a")]
    assert Unigram(vocab, 0).encode("a") == ids == [6]


def test_paths_with_equal_scores_have_no_result():
    assert Unigram([("<unk>", 0.0), ("-", -1.0), ("---", -1.0)], 0).encode("----") is None


def test_paths_that_rounding_may_reorder_have_no_result():
    close = [("<unk>", 0.0), ("a", -1.0), ("aa", -2.0 + 1e-5)]
    clear = [("<unk>", 0.0), ("a", -1.0), ("aa", -2.0 + 1e-3)]
    assert Unigram(close, 0).encode("aa") is None
    assert Unigram(clear, 0).encode("aa") == [2]


def test_a_tie_beside_the_best_path_does_not_matter():
    vocab = [("<unk>", 0.0), ("-", -1.0), ("--", -2.0), ("---", -1.0)]
    assert Unigram(vocab, 0).encode("---") == [3]


def test_a_part_that_is_too_long_has_no_result(unigram):
    assert unigram.encode("a" * LONGEST_PART) == [1] * LONGEST_PART
    assert unigram.encode("a" * (LONGEST_PART + 1)) is None
