from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.chat.control_strings import THOUGHT_TAGS
from tokmill.chat.inline_tags import read_call, split_reasoning, trailing_blocks

CALL = '{"name": "f", "arguments": {"x": 1}}'


def test_tags_of_a_solution_behind_a_thought_go_if_they_hold_all_the_rest():
    thought = "<|begin_of_thought|>\n\na\n\n<|end_of_thought|>\n\n"
    solution = "<|begin_of_solution|>\n\nb\n\n<|end_of_solution|>"
    assert split_reasoning(thought + solution, THOUGHT_TAGS) == ("a", "b")
    assert split_reasoning(thought + "b", THOUGHT_TAGS) == ("a", "b")
    assert split_reasoning(f"{thought}{solution} c", THOUGHT_TAGS) == ("a", f"{solution} c")


@pytest.mark.parametrize(
    ("text", "rest", "n_calls"),
    [
        (f"<tool_call>\n{CALL}\n</tool_call>", "", 1),
        (f"I look.\n\n<tool_call>{CALL}</tool_call>\n", "I look.", 1),
        (f"a\n<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>", "a", 2),
        (f"<tool_call>{CALL}</tool_call> and\n<tool_call>{CALL}</tool_call>",
         f"<tool_call>{CALL}</tool_call> and", 1),
    ],
)  # fmt: skip
def test_blocks_of_calls_that_end_a_reply_are_calls(text, rest, n_calls):
    blocks = trailing_blocks(text)
    assert text[: blocks[0][0][0]].rstrip("\n") == rest
    assert [text[start[1] : stop[0]].strip() for start, stop in blocks] == [CALL] * n_calls


@pytest.mark.parametrize(
    "call",
    [
        "{}",
        "[]",
        '"f"',
        '{"name": "f"}',
        '{"name": "f", "arguments": {}, "id": 1}',
        '{"name": "f", "parameters": {}}',
        '{"name": "", "arguments": {}}',
        '{"name": 1, "arguments": {}}',
        '{"name": "a\\"b", "arguments": {}}',
        '{"name": "f", "arguments": "{}"}',
        '{"name": "f", "arguments": {"x": 1, "x": 2}}',
        '{"name": "f", "arguments": {"x": NaN}}',
        '{"name": "f", "arguments": {"x": 1e999}}',
        '{"name": "f", "arguments": {"x": "\\ud800"}}',
        '{"name": "f", "arguments": ' + '{"x":' * 100_000 + "1" + "}" * 100_001,
    ],
)
def test_json_that_a_template_would_lose_some_of_is_no_call(call):
    assert read_call(call) is None
    assert trailing_blocks(f"<tool_call>{call}</tool_call>") == []


VALUES = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text(), max_size=2)


@given(st.dictionaries(st.text(), VALUES, max_size=3))
def test_every_other_call_is_read_as_it_stands(arguments):
    call = {"name": "f", "arguments": arguments}
    assert read_call(json.dumps(call)) == call


def test_a_call_has_its_name_first_as_templates_write_it():
    assert list(read_call('{"arguments": {}, "name": "f"}') or ()) == ["name", "arguments"]
