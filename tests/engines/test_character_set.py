from __future__ import annotations

import json

import pytest

from tokmill.engines.character_set import CharacterSet, every_character


def test_a_set_is_ranges_of_neighbours():
    found = CharacterSet.of([5, 3, 4, 9, 3])
    assert found.ranges == ((3, 5), (9, 9))
    assert list(found.codes()) == [3, 4, 5, 9]
    assert len(found) == 4
    assert [code in found for code in (2, 3, 5, 6, 9)] == [False, True, True, False, True]
    assert (found | CharacterSet.of([6, 7, 8])).ranges == ((3, 9),)


def test_an_empty_set_is_false():
    assert not CharacterSet()
    assert CharacterSet.of([]) == CharacterSet()


def test_a_set_survives_json():
    found = CharacterSet.of([1, 2, 0x10FFFF])
    assert CharacterSet.from_json(json.loads(json.dumps(found.as_json()))) == found


@pytest.mark.parametrize("ranges", [[[2, 1]], [[1, 2], [2, 3]], [[-1, 2]], [[0, 0x110000]], [[1]]])
def test_ranges_out_of_order_are_refused(ranges):
    with pytest.raises(ValueError, match=r"range|unpack"):
        CharacterSet.from_json(ranges)


def test_every_character_is_every_code_point_but_the_surrogates():
    codes = list(every_character())
    assert len(codes) == 1_112_064
    assert chr(codes[-1]).encode() == b"\xf4\x8f\xbf\xbf"
