from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

import tokmill.engines.routing as find_characters
from tokmill.engines.routing import COMMON, EVERY, LAST, RARE, CharacterFinder, CharacterSet

SETS = {
    "of four bytes": CharacterSet(((0x2B73A, 0x2B73F), (0x323B0, 0x33479))),
    "of three and two": CharacterSet.of([0x88F, 0xC5C, 0x7FD, 0x180E, 0xA7CE]),
    "of one": CharacterSet.of([0x41, 0x7FF]),
    "the last ones": CharacterSet(((0xFFFF, 0x10000), (0x10FFFF, 0x10FFFF))),
    "a million": CharacterSet(((0x10000, 0x1EFFF), (0x20000, LAST))),
    "and more": CharacterSet(((0xE9, 0xE9), (0xE000, 0xF8FF), (0x10000, 0x1F5FF), (0x1FC00, LAST))),
}


def column(texts: list[str]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("share", [0.001, 0.3])
def test_exactly_the_documents_that_contain_one_are_found(name, share, monkeypatch):
    monkeypatch.setattr(find_characters, "_CHUNK_BYTES", 999)
    characters, dice = SETS[name], random.Random(7)
    codes = list(characters.codes())
    bounds = {code for range_ in characters.ranges for code in range_}
    near = [code for code in {b + s for b in bounds for s in (-64, -1, 1, 64)} if code in EVERY]

    def character() -> str:
        if dice.random() < share:
            return chr(dice.choice(codes))
        return chr(dice.choice(near)) if dice.random() < 0.5 else dice.choice("ab é中😀\U0003fffe")

    texts = ["".join(character() for _ in range(dice.randrange(12))) for _ in range(3000)]
    expected = [i for i, text in enumerate(texts) if any(ord(c) in characters for c in text)]
    assert 0 < len(expected) < len(texts)
    finder = CharacterFinder(characters)
    assert np.flatnonzero(finder.documents_with_one(column(texts))).tolist() == expected
    some = column(texts).slice(1000, 700)
    assert np.flatnonzero(finder.documents_with_one(some)).tolist() == [
        i - 1000 for i in expected if 1000 <= i < 1700
    ]


def test_no_text_contains_none():
    finder = CharacterFinder(SETS["of four bytes"])
    for texts in ([], [""], ["", ""], ["plain", ""]):
        assert np.flatnonzero(finder.documents_with_one(column(texts))).tolist() == []


def test_a_character_at_the_very_end_of_a_column_is_found():
    finder = CharacterFinder(SETS["of four bytes"])
    assert np.flatnonzero(finder.documents_with_one(column(["", "a", "b\U000323b0"]))).tolist() == [
        2
    ]
    assert np.flatnonzero(
        finder.documents_with_one(column(["\U000323b0", "", "\U0003347a"]))
    ).tolist() == [0]


@pytest.mark.parametrize("ranges", [[[2, 1]], [[1, 2], [2, 3]], [[-1, 2]], [[0, 0x110000]], [[1]]])
def test_ranges_out_of_order_are_refused(ranges):
    with pytest.raises(ValueError, match=r"range|unpack"):
        CharacterSet.from_json(ranges)


def test_the_union_of_sets_joins_ranges_that_touch_or_overlap():
    left = CharacterSet(((1, 4), (10, 12), (20, 20)))
    right = CharacterSet(((0, 0), (3, 5), (13, 13), (15, 18), (30, 31)))
    union = CharacterSet(((0, 5), (10, 13), (15, 18), (20, 20), (30, 31)))
    assert left | right == right | left == union
    assert left | CharacterSet() == left


def test_every_character_is_every_code_point_but_the_surrogates():
    codes = list(EVERY.codes())
    assert len(codes) == 1_112_064
    assert chr(codes[-1]).encode() == b"\xf4\x8f\xbf\xbf"


def test_every_character_is_either_common_or_rare():
    assert len(COMMON) + len(RARE) == len(EVERY)
    assert [ord(c) in COMMON for c in "a\uffff😀🪿𝔘𠜎\U000f0000"] == [True] * 4 + [False] * 3
