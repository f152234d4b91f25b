from __future__ import annotations

import numpy as np
import pyarrow as pa

from tokmill.engines.engine import REFERENCE, load_engine
from tokmill.engines.routing import CharacterSet, RoutedEngine, Routes
from tokmill.offsets import select_documents

TEXTS = ["hello", "x\u088fy", "", "the cat", "\u088f", "猫"]


class Skewed:
    """An engine that gives every id one too high."""

    name, renewable, concurrent = "skewed", True, True

    def __init__(self, engine):
        self._engine = engine
        self.texts = []

    def encode(self, text):
        self.texts += text.to_pylist()
        batch = self._engine.encode(text)
        return type(batch)(batch.ids + 1, batch.offsets)


def reference_of(tokenizer):
    return load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1)


def documents(batch) -> list[list[int]]:
    return [batch.ids[a:b].tolist() for a, b in zip(batch.offsets, batch.offsets[1:], strict=False)]


def test_documents_with_the_characters_get_the_ids_of_the_reference_in_their_place(tokenizer):
    reference = reference_of(tokenizer)
    skewed = Skewed(reference)
    engine = RoutedEngine(skewed, lambda: reference, Routes(CharacterSet.of([0x88F])))
    batch = engine.encode(pa.array(TEXTS, pa.large_string()))
    expected = documents(reference.encode(pa.array(TEXTS, pa.large_string())))
    skew = [0 if "\u088f" in text else 1 for text in TEXTS]
    assert documents(batch) == [
        [id_ + one for id_ in ids] for ids, one in zip(expected, skew, strict=True)
    ]
    assert batch.routed.tolist() == [1, 4]
    assert skewed.texts == ["hello", "", "the cat", "猫"]
    assert (engine.name, engine.renewable, engine.concurrent) == ("skewed", True, True)


def test_the_reference_is_not_loaded_for_texts_without_them(tokenizer):
    def never():
        raise AssertionError

    engine = RoutedEngine(Skewed(reference_of(tokenizer)), never, Routes(CharacterSet.of([0x88F])))
    assert engine.encode(pa.array(["hello", "猫"], pa.large_string())).routed is None


def test_all_documents_may_be_routed(tokenizer):
    reference = reference_of(tokenizer)
    engine = RoutedEngine(Skewed(reference), lambda: reference, Routes(CharacterSet.of([0x88F])))
    batch = engine.encode(pa.array(["\u088f"] * 3, pa.large_string()))
    assert batch.routed.tolist() == [0, 1, 2]
    assert len(set(map(tuple, documents(batch)))) == 1


def test_routed_documents_are_kept_through_a_selection(tokenizer):
    reference = reference_of(tokenizer)
    engine = RoutedEngine(Skewed(reference), lambda: reference, Routes(CharacterSet.of([0x88F])))
    batch = engine.encode(pa.array(TEXTS, pa.large_string()))
    kept = select_documents(batch, np.array([False, True, True, False, True, True]))
    assert kept.routed.tolist() == [0, 2]


def test_a_panic_of_an_engine_sends_the_text_to_the_reference(tokenizer):
    class PanicException(BaseException):  # as native code raises it
        pass

    class Panics(Skewed):
        def encode(self, text):
            if "the cat" in text.to_pylist():
                raise PanicException("index out of range")
            return super().encode(text)

    reference = reference_of(tokenizer)
    engine = RoutedEngine(Panics(reference), lambda: reference, Routes())
    assert engine.encode(pa.array(TEXTS, pa.large_string())).routed.tolist() == [3]


def test_documents_with_a_string_are_routed_and_no_longer_ones(tokenizer):
    reference = reference_of(tokenizer)
    routes = Routes(CharacterSet.of([0x88F]), ("a+", " \n."))
    engine = RoutedEngine(Skewed(reference), lambda: reference, routes)
    texts = ["a+b", "a", "+", "aa", "x \n.y", "\u088f", ""]
    assert engine.is_routed(pa.array(texts, pa.large_string())).tolist() == [
        True, False, False, False, True, True, False,
    ]  # fmt: skip
