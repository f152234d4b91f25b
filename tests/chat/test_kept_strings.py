from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.chat.kept_strings import (
    KEPT_CONTROL,
    KEPT_TAGS,
    KeptStrings,
    holds,
    patterns,
)

pieces = [
    "<|im_end|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "<",
    "a",
    "猫",
    "\n",
    "<|im_",
    "end|>",
]


def counted(kept: KeptStrings, text: str) -> dict[str, int]:
    noticed = Counter[str]()
    kept.notice([{"role": "user", "content": text}], noticed)
    return dict(noticed)


def test_tags_and_other_control_strings_are_counted_apart(vocabulary):
    kept = KeptStrings(vocabulary)
    text = "<think>a</think> <tool_call> <|im_end|><|im_start|> <eos> <tool> [THINK]"
    assert counted(kept, text) == {KEPT_TAGS: 3, KEPT_CONTROL: 3}


def test_tags_are_counted_where_the_tokenizer_has_no_such_tokens(vocabulary):
    kept = KeptStrings(replace(vocabulary, control={"<eos>": 0}))
    assert counted(kept, "<think>a</think><|im_end|>") == {KEPT_TAGS: 2}


def test_strings_that_become_tokens_are_not_counted(vocabulary):
    assert counted(KeptStrings(replace(vocabulary, parse=True)), "<think><eos>") == {}
    parsed = frozenset({"<think>"})
    control = {"<eos>": 0}
    kept = KeptStrings(replace(vocabulary, control=control, parsed=parsed))
    assert counted(kept, "<think></think>") == {KEPT_TAGS: 1}


def test_strings_in_the_reasoning_of_a_message_are_counted(vocabulary):
    noticed = Counter[str]()
    message = {"role": "assistant", "content": "<eos>", "reasoning_content": "<eos> <think>"}
    KeptStrings(vocabulary).notice([message], noticed)
    assert noticed == {KEPT_CONTROL: 2, KEPT_TAGS: 1}


@given(st.lists(st.lists(st.sampled_from(pieces)).map("".join), max_size=5), st.integers(0, 2))
def test_a_column_has_the_counts_of_its_texts(texts, start):
    control = {"<|im_end|>": 0, "end|>": 1}
    kept = KeptStrings(_of(control))
    column = pa.array(["<eos>", "x", *texts], pa.string())[start:]
    found = kept.in_column(column)
    for name in (KEPT_TAGS, KEPT_CONTROL):
        expected = [counted(kept, text).get(name, 0) for text in column.to_pylist()]
        assert found.get(name, np.zeros(len(column), int)).tolist() == expected


def _of(control):
    from tokmill.chat.templates import Vocabulary

    return Vocabulary(control, "<eos>", "", {})


@pytest.mark.parametrize(
    ("texts", "found"), [([], False), (["", "a"], False), (["a", "b</think>"], True)]
)
def test_a_column_is_looked_through_at_once(texts, found):
    assert holds(pa.array(texts, pa.string()), patterns(["</think>", "[END]"])) is found
