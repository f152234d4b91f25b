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
