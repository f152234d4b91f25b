from __future__ import annotations

from tokmill.engines.characters import COMMON, EVERY, CharacterSet
from tokmill.engines.trial.character_classes import character_classes, divided, own_sets


def class_of(character: str, classes=None) -> str:
    (found,) = (one for one in classes or character_classes(EVERY) if character in one)
    return found


def test_every_character_is_in_one_class():
    every = "".join(character_classes(EVERY))
    assert len(every) == 1_112_064
    assert set(map(ord, every)) == set(EVERY.codes())


def test_characters_that_patterns_and_normalizers_distinguish_are_in_different_classes():
    apart = "a1 é中가각\u1100\u1161\u11a8\u0301\u0323\u0345\u3000²Ⅷſǅß\u200d😀\ue000\u0378"
    assert len({class_of(one) for one in apart}) == len(apart)


def test_a_pattern_s_own_ranges_and_scripts_divide_classes():
    sets = own_sets([r"[一-龥]+|\p{Hiragana}+|\p{L}|\s|[a-z]|[\u0e00-\u0e7f]"])
    classes = divided(character_classes(EVERY), sets)
    assert len(sets) == 3
    assert class_of("ก") == class_of("א")
    assert class_of("ก", classes) != class_of("א", classes)
    assert class_of("い", classes) != class_of("イ", classes)
    assert class_of("中", classes) != class_of("㐀", classes)
    assert sum(map(len, classes)) == 1_112_064


def test_an_unknown_property_divides_nothing():
    assert own_sets([r"\p{Nonsense}"]) == []


def test_a_property_that_classes_cover_is_not_a_set():
    assert own_sets([r"\p{L}\p{Lu}[\p{M}\p{N}]\P{Zs}[^\r\n\p{L}\p{N}]?"]) == []


def test_a_class_is_divided_by_the_sets_of_its_characters():
    assert divided(["abcd"], [CharacterSet.of(map(ord, "bd"))]) == ["ac", "bd"]
    assert divided(["abcd"], []) == ["abcd"]


def test_the_classes_of_common_characters_are_those_of_all_without_the_rare_ones():
    common = ["".join(c for c in one if ord(c) in COMMON) for one in character_classes(EVERY)]
    assert list(filter(None, common)) == list(character_classes(COMMON))
