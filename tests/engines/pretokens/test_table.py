from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from tokmill.engines.pretokens.table import PretokenIds, PretokenTable


class Encoder:
    """The ids of a piece are its bytes."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def __call__(self, pieces):
        self.asked += pieces
        return [PretokenIds(list(piece)) for piece in pieces]


@pytest.fixture
def encoder():
    return Encoder()


@pytest.fixture
def table(encoder):
    return PretokenTable(encoder)


def gathered(table, pieces):
    ids, ends = table.gather(table.slots(pieces))
    return ids.tolist(), ends.tolist()


def test_the_ids_of_pieces_stand_end_to_end(table):
    assert gathered(table, [b"ab", b"", b"c"]) == ([97, 98, 99], [2, 2, 3])
    assert gathered(table, []) == ([], [])


def test_a_piece_is_encoded_once(table, encoder):
    first = table.slots([b"a", b"b"]).tolist()
    assert table.slots([b"b", b"c", b"a"]).tolist() == [first[1], 2, first[0]]
    assert encoder.asked == [b"a", b"b", b"c"]


def test_ids_keep_their_place_while_the_table_grows(table):
    pieces = [str(i).encode() for i in range(5000)]
    for start in range(0, 5000, 500):
        table.slots(pieces[start : start + 500])
    ids, ends = gathered(table, pieces)
    assert bytes(ids) == b"".join(pieces)
    assert ends[-1] == len(ids)


def test_the_size_counts_pieces_and_ids(table):
    assert table.n_bytes == 0
    table.slots([b"abc"])
    one = table.n_bytes
    assert one > 3 + 4 * 3
    table.slots([b"abc", b"xyz"])
    assert table.n_bytes == 2 * one


def test_an_unknown_token_that_goes_on_is_one_with_the_one_before():
    answers = {
        b"a": PretokenIds([7, 0], ends_unknown=True),
        b"b": PretokenIds([0], continues_unknown=True, ends_unknown=True),
        b"c": PretokenIds([0, 5], continues_unknown=True),
        b"d": PretokenIds([0, 6]),
    }
    table = PretokenTable(lambda pieces: [answers[piece] for piece in pieces])
    assert gathered(table, [b"a", b"b", b"c", b"d"]) == ([7, 0, 5, 0, 6], [2, 2, 3, 5])
    assert gathered(table, [b"d", b"c"]) == ([0, 6, 0, 5], [2, 4])
    assert gathered(table, [b"a", b"d"]) == ([7, 0, 0, 6], [2, 4])


def test_a_piece_that_holds_only_as_a_whole_word_is_told():
    table = PretokenTable(
        lambda pieces: [PretokenIds([1], alone=piece == b"a") for piece in pieces]
    )
    assert table.alone(table.slots([b"a", b"b"])).tolist() == [True, False]


def test_threads_that_ask_for_the_same_pieces_have_them_encoded_once(table, encoder):
    pieces = [str(i).encode() for i in range(3000)]
    barrier = Barrier(4)

    def ask(_):
        barrier.wait()
        return bytes(gathered(table, pieces)[0])

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(ask, range(4))) == {b"".join(pieces)}
    assert encoder.asked == pieces
