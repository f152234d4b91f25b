from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from tokmill.engines.pretokens.table import PretokenIds, PretokenTable


class Encoder:
    """The ids of a pretoken are its bytes."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def __call__(self, pretokens):
        self.asked += pretokens
        return [PretokenIds(list(pretoken)) for pretoken in pretokens]


@pytest.fixture
def encoder():
    return Encoder()


@pytest.fixture
def table(encoder):
    return PretokenTable(encoder)


def gathered(table, pretokens):
    ids, ends = table.gather(table.slots(pretokens))
    return ids.tolist(), ends.tolist()


def test_the_ids_of_pretokens_are_concatenated(table):
    assert gathered(table, [b"ab", b"", b"c"]) == ([97, 98, 99], [2, 2, 3])
    assert gathered(table, []) == ([], [])


def test_a_pretoken_is_encoded_once(table, encoder):
    first = table.slots([b"a", b"b"]).tolist()
    assert table.slots([b"b", b"c", b"a"]).tolist() == [first[1], 2, first[0]]
    assert encoder.asked == [b"a", b"b", b"c"]


def test_ids_keep_their_place_while_the_table_grows(table):
    pretokens = [str(i).encode() for i in range(5000)]
    for start in range(0, 5000, 500):
        table.slots(pretokens[start : start + 500])
    ids, ends = gathered(table, pretokens)
    assert bytes(ids) == b"".join(pretokens)
    assert ends[-1] == len(ids)


def test_the_size_counts_pretokens_and_ids(table):
    assert table.n_bytes == 0
    table.slots([b"abc"])
    one = table.n_bytes
    assert one > 3 + 4 * 3
    table.slots([b"abc", b"xyz"])
    assert table.n_bytes == 2 * one


def test_unknown_tokens_of_neighbouring_pretokens_merge():
    answers = {
        b"a": PretokenIds([7, 0], ends_unknown=True),
        b"b": PretokenIds([0], continues_unknown=True, ends_unknown=True),
        b"c": PretokenIds([0, 5], continues_unknown=True),
        b"d": PretokenIds([0, 6]),
    }
    table = PretokenTable(lambda pretokens: [answers[pretoken] for pretoken in pretokens])
    assert gathered(table, [b"a", b"b", b"c", b"d"]) == ([7, 0, 5, 0, 6], [2, 2, 3, 5])
    assert gathered(table, [b"d", b"c"]) == ([0, 6, 0, 5], [2, 4])
    assert gathered(table, [b"a", b"d"]) == ([7, 0, 0, 6], [2, 4])


def test_a_pretoken_with_ids_only_as_a_complete_word_is_marked():
    table = PretokenTable(
        lambda pretokens: [PretokenIds([1], alone=pretoken == b"a") for pretoken in pretokens]
    )
    assert table.alone(table.slots([b"a", b"b"])).tolist() == [True, False]


def test_a_pretoken_is_encoded_once_for_all_threads(table, encoder):
    pretokens = [str(i).encode() for i in range(3000)]
    barrier = Barrier(4)

    def ask(_):
        barrier.wait()
        return bytes(gathered(table, pretokens)[0])

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(ask, range(4))) == {b"".join(pretokens)}
    assert encoder.asked == pretokens
