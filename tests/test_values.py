from __future__ import annotations

import numpy as np
import pytest

from tokmill.values import RecordPlace, TokenBatch


@pytest.mark.parametrize(
    ("place", "origin", "expected"),
    [
        (RecordPlace(3, 40), RecordPlace(0, 0), RecordPlace(3, 40)),
        (RecordPlace(3, 40), RecordPlace(10, 1000), RecordPlace(13, 1040)),
        (RecordPlace(3, -1), RecordPlace(10, 1000), RecordPlace(13, -1)),
    ],
)
def test_a_place_is_shifted_to_the_start_of_its_file(place, origin, expected):
    assert place.shifted(origin) == expected


def test_places_are_ordered_by_line():
    assert sorted([RecordPlace(2, 5), RecordPlace(1, 9)]) == [RecordPlace(1, 9), RecordPlace(2, 5)]


def test_a_token_batch_knows_its_documents_and_their_lengths():
    batch = TokenBatch(np.array([7, 8, 9], np.uint32), np.array([0, 2, 2, 3], np.int64))
    assert batch.n_documents == 3
    assert batch.lengths.tolist() == [2, 0, 1]


def test_an_empty_token_batch_has_no_documents():
    batch = TokenBatch(np.zeros(0, np.uint32), np.zeros(1, np.int64))
    assert batch.n_documents == 0
    assert batch.lengths.tolist() == []
