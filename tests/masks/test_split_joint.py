from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tokmill.engines.reference import load_reference
from tokmill.masks.encoder import SplitJointCheck

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


@pytest.fixture
def engine(make_tokenizer, bytes_model):
    model = bytes_model(("a", "b"), ("Ċ", "Ċ"), ("c", "d"), ("cd", "e"), ("d", "e"))
    return load_reference(make_tokenizer(model, pre_tokenizer=BYTES), parse=False)


def column(texts):
    return pa.array(texts, pa.large_string())


@pytest.mark.parametrize(
    ("left", "right", "differs"),
    [
        ("xa", "bx", True),  # two tokens become one
        ("xa", "cx", False),
        ("x\n", "\nx", True),
        ("a b", "c", False),
        ("xc", "dex", True),  # c, de and cde
        ("猫", "猫", False),
        ("猫" * 50 + "a", "b" + "猫" * 50, True),
        ("a", "b", True),
        ("a" * 100, " b", False),
    ],
)
def test_a_split_differs_where_the_joint_text_has_other_tokens(engine, left, right, differs):
    found = SplitJointCheck().find(column([left, right]), np.array([1]), engine.encode)
    assert found.tolist() == [differs]


def test_the_same_number_of_other_tokens_differs(make_tokenizer, bytes_model):
    # "a" "bc" and "ab" "c": two tokens each.
    model = bytes_model(("a", "b"), ("b", "c"))
    engine = load_reference(make_tokenizer(model, pre_tokenizer=BYTES), parse=False)
    texts = column(["a", "bc", "xa", "c", "a", "bc"])
    assert SplitJointCheck().find(texts, np.array([1, 3, 5]), engine.encode).tolist() == [
        True,
        False,
        True,
    ]


def test_a_window_is_at_most_a_word_of_complete_characters(engine):
    asked = []

    def encode(text):
        asked.extend(text.to_pylist())
        return engine.encode(text)

    SplitJointCheck().find(column(["猫" * 20, " \n" + "狗" * 20]), np.array([1]), encode)
    assert asked == ["猫猫", " \n狗狗", "猫猫 \n狗狗"]


def test_a_window_ends_with_its_text(engine):
    asked = []

    def encode(text):
        asked.extend(text.to_pylist())
        return engine.encode(text)

    SplitJointCheck().find(column(["zz", "a", "b", "zz"]).slice(1, 2), np.array([1]), encode)
    assert asked == ["a", "b", "ab"]
