from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from tokmill.engines.pretokens.pretoken_ids import (
    INSIDE,
    PretokenEncoder,
    PretokenIds,
    PretokenTable,
)
from tokmill.engines.pretokens.split_rule import split_rule
from tokmill.engines.pretokens.unigram import LONGEST_PART


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


MARKS = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
SPLIT_MARKS = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, MARKS]}
TOKENS = ["<unk>", "▁", "▁a", "a", "b", "-", "---", "<eos>"]
UNIGRAM = {"type": "Unigram", "unk_id": 0, "vocab": [[token, -1.0] for token in TOKENS]}
EOS = {
    **{"id": 7, "content": "<eos>", "special": True, "single_word": False},
    **{"lstrip": False, "rstrip": False, "normalized": False},
}


def encoder_of(pre_tokenizer=SPLIT_MARKS, normalizer=None, model=UNIGRAM, added=()):
    content = {
        "added_tokens": list(added),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "model": model,
    }
    return PretokenEncoder(content, split_rule(content, parse=False))


def inside(encoder, *texts):
    return encoder.encode([INSIDE + text.encode() for text in texts])


def test_a_pretoken_that_begins_a_word_has_the_ids_of_the_library():
    assert encoder_of().encode([b"ab ", b"x", b""]) == [
        PretokenIds([2, 4]),
        PretokenIds([1, 0], ends_unknown=True),
        PretokenIds([]),
    ]


def test_a_pretoken_inside_a_word_gets_no_mark():
    assert inside(encoder_of(), "a", "ba", "x") == [
        PretokenIds([3]),
        PretokenIds([4, 3]),
        PretokenIds([0], continues_unknown=True, ends_unknown=True),
    ]


@pytest.mark.parametrize(
    ("text", "ids"),
    [("a ", [3]), ("a  \u3000", [3]), ("a b", [3, 1, 4]), ("a▁a", [3, 2]), ("a▁", [3, 1])],
)
def test_text_after_the_end_of_the_word_is_encoded_as_words(text, ids):
    assert inside(encoder_of(), text) == [PretokenIds(ids)]


def test_a_mark_that_splits_no_word_belongs_to_it():
    steps = [{"type": "WhitespaceSplit"}, MARKS | {"split": False}]
    whole = {"type": "Sequence", "pretokenizers": steps}
    assert inside(encoder_of(whole), "b▁b ▁b") == [PretokenIds([4, 1, 4, 1, 4])]


def test_spaces_that_are_not_dropped_are_words():
    assert inside(encoder_of(MARKS), "a  b") == [PretokenIds([3, 1, 1, 4])]


def test_an_unknown_token_after_the_word_does_not_merge_with_one_inside():
    assert inside(encoder_of(), "x y") == [
        PretokenIds([0, 1, 0], continues_unknown=True, ends_unknown=True)
    ]


def test_a_pretoken_whose_ids_depend_on_its_word_cannot_be_encoded_alone():
    assert inside(encoder_of(), "----", "a") == [PretokenIds([], alone=True), PretokenIds([3])]


def test_ids_after_a_pretoken_without_ids_do_not_go_to_the_next():
    assert inside(encoder_of(), "---- a", "b ab") == [
        PretokenIds([], alone=True),
        PretokenIds([4, 2, 4]),
    ]


def test_a_pretoken_that_becomes_too_long_cannot_be_encoded_alone():
    double = {"type": "Replace", "pattern": {"String": "b"}, "content": "aa"}
    half = "b" * (LONGEST_PART // 2)
    begins = encoder_of(normalizer=double)
    (short,) = begins.encode([half.encode()])
    (long,) = begins.encode([half.encode() + b"a"])
    assert not short.alone
    assert long.alone
    assert len(long.ids) == LONGEST_PART + 1
    assert not inside(begins, half)[0].alone
    assert inside(begins, half + "a") == [PretokenIds([], alone=True)]


def test_pretokens_are_normalized():
    lower = encoder_of(normalizer={"type": "Sequence", "normalizers": [{"type": "Lowercase"}]})
    assert lower.encode([b"A"]) == [PretokenIds([2])]
    assert inside(lower, "A") == [PretokenIds([3])]
    assert [step("A") for step in lower.normalizers] == ["a"]


def test_the_strings_of_special_tokens_are_text():
    model = {"type": "WordLevel", "vocab": {"<unk>": 0, "a": 1, "<eos>": 7}, "unk_token": "<unk>"}
    bert = encoder_of({"type": "BertPreTokenizer"}, model=model, added=[EOS])
    assert bert.encode([b"a<eos>"]) == [PretokenIds([1, 0, 0, 0])]


def test_the_pre_tokenizer_returns_words():
    assert encoder_of().words("a b▁c") == ["▁a", "▁b", "▁c"]
