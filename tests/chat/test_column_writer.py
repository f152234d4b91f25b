from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokmill.chat import renderer as renderer_module
from tokmill.chat.reading.columns import read_regular
from tokmill.values import SampleBatch

TEMPLATES = ("chatml", "llama3", "alpaca", "plain", "torchtune", "baby-llama2", "nanochat")

texts = st.text(max_size=8) | st.sampled_from(
    ["", " ", "\n", "<|im_end|>", "\x1c\u3000x\u2029", "👍", "<think>a</think>b", "x </think>"]
)
roles = st.sampled_from(["system", "user", "assistant", "developer", "tool", "gpt", "human"])
dialogs = st.lists(st.fixed_dictionaries({"role": roles, "content": texts}), min_size=1, max_size=4)
beside = {
    "id": st.none() | st.integers(-1, 1),
    "url": st.none() | st.sampled_from(["", "u", "2020-01-01"]),
    "tags": st.none() | st.lists(st.sampled_from(["", "t"]), max_size=2),
    "": st.none() | st.sampled_from(["", "u"]),
    "meta": st.none() | st.fixed_dictionaries({}, optional={"a": st.booleans()}),
}
conversations = st.fixed_dictionaries({"messages": dialogs}, optional=beside)
instructions = st.fixed_dictionaries(
    {"instruction": texts, "output": texts}, optional={"input": texts | st.none(), **beside}
)
pairs = st.fixed_dictionaries(
    {"prompt": texts, "completion": texts}, optional={"context": texts | st.none(), **beside}
)


def equal(left: SampleBatch, right: SampleBatch) -> bool:
    names = ("offsets", "control", "weights", "turn_ends", "rows")
    same = [np.array_equal(getattr(left, name), getattr(right, name)) for name in names]
    same += [unread(left) == unread(right)]
    noticed = [{k: n.tolist() for k, n in batch.counters.items()} for batch in (left, right)]
    return (
        left.text.equals(right.text)
        and all(same)
        and list(left.refused) == list(right.refused)
        and noticed[0] == noticed[1]
    )


def unread(batch: SampleBatch) -> list[tuple[str, ...]]:
    keys = batch.unread_keys
    rows = [-1] * len(batch.rows) if keys is None else keys.of_row.tolist()
    return [() if row < 0 or keys is None else keys.sets[row] for row in rows]


def record_by_record(renderer, records, monkeypatch) -> SampleBatch:
    with monkeypatch.context() as patch:
        patch.setattr(renderer_module, "read_regular", lambda *_: None)
        batch: SampleBatch = renderer.render(records)
    return batch


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("default_system", ["", "Be kind."])
@pytest.mark.parametrize(
    ("schema", "records", "join"),
    [
        ("messages", conversations, {}),
        ("alpaca", instructions, {}),
        ("alpaca", instructions, {"instruction": "stanford"}),
        ("prompt", pairs, {}),
    ],
)
def test_columns_and_single_records_give_the_same_samples(
    make_renderer, whole_records, monkeypatch, template, default_system, schema, records, join
):
    renderer = make_renderer(template, schema=schema, default_system=default_system, **join)

    @settings(max_examples=30, deadline=None)
    @given(st.lists(records, min_size=1, max_size=6))
    def check(rows):
        found = whole_records([json.dumps(row, ensure_ascii=False) for row in rows])
        assert equal(renderer.render(found), record_by_record(renderer, found, monkeypatch))

    check()


def columnar(
    make_renderer, vocabulary, template: str, lines: list[str], schema: str, **settings
) -> bool:
    """Say whether lines go the short way."""
    import pyarrow as pa

    renderer = make_renderer(template, schema=schema, **settings)
    text = pa.array(lines, pa.large_string())
    regular = read_regular(text, schema, renderer._settings)
    writer = renderer._columnar
    return regular is not None and writer.write(regular) is not None


PAIR = '{"prompt": "p", "completion": "c"}'
DIALOG = '{"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]}'


@pytest.mark.parametrize(
    "template", ["chatml", "llama3", "alpaca", "plain", "torchtune", "baby-llama2"]
)
def test_regular_blocks_go_the_short_way(make_renderer, vocabulary, template):
    assert columnar(make_renderer, vocabulary, template, [PAIR, PAIR], "prompt")
    assert columnar(make_renderer, vocabulary, template, [DIALOG], "messages")


@pytest.mark.parametrize(
    "odd",
    [
        '{"prompt": "p", "completion": null}',
        '{"prompt": ["p"], "completion": "c"}',
        '{"prompt": "p", "completion": "c", "weight": 0}',
        '{"prompt": "p", "answer": "c"}',
        '{"prompt": "p", "completion": "\\ud800"}',
        '{"prompt": "p", "completion": "c", "prompt": "q"}',
    ],
)
def test_a_block_with_an_odd_record_does_not(make_renderer, vocabulary, odd):
    assert not columnar(make_renderer, vocabulary, "chatml", [PAIR, odd], "prompt")


@pytest.mark.parametrize(
    "odd",
    [
        '{"messages": []}',
        '{"messages": null}',
        '{"messages": [{"role": "user", "content": null}]}',
        '{"messages": [{"role": "user", "content": "u", "train": true}]}',
        '{"messages": [{"role": "bot", "content": "u"}]}',
        '{"messages": [{"role": "tool", "content": "u"}]}',
        '{"messages": [{"role": "user", "content": "u"}], "tools": [{"name": "f"}]}',
    ],
)
def test_nor_does_one_with_an_odd_message(make_renderer, vocabulary, odd):
    assert not columnar(make_renderer, vocabulary, "chatml", [DIALOG, odd], "messages")


@pytest.mark.parametrize(
    ("tag", "reads"), [("</think>", True), ("</tool_call>", True), ("<b>", False)]
)
def test_a_block_with_tags_that_are_read_takes_the_long_way(
    make_renderer, whole_records, monkeypatch, tag, reads
):
    renderer = make_renderer("chatml")
    written = []
    monkeypatch.setattr(
        renderer, "write", lambda text: written.append(1) or renderer.writer.write(text)
    )
    renderer.render(whole_records([DIALOG, DIALOG.replace('"a"', f'"a {tag}"')]))
    assert bool(written) is reads


def test_settings_that_change_what_a_sample_is_take_the_long_way(make_renderer, vocabulary):
    assert not columnar(make_renderer, vocabulary, "chatml", [DIALOG], "messages", samples="turn")


@pytest.mark.parametrize("instruction", ["newline", "blank-line", "stanford"])
def test_instructions_go_the_short_way_however_they_are_joined(
    make_renderer, vocabulary, instruction
):
    lines = [
        '{"instruction": "i", "input": "j", "output": "o"}',
        '{"instruction": "i", "input": null, "output": "o"}',
    ]
    for template in ("alpaca", "chatml"):
        assert columnar(
            make_renderer, vocabulary, template, lines, "alpaca", instruction=instruction
        )


@pytest.mark.parametrize("ignored", [(), ("context",), ("id", "nowhere")])
def test_keys_that_nothing_reads_keep_a_block_on_the_short_way(
    make_renderer, vocabulary, whole_records, monkeypatch, ignored
):
    rows = [{"prompt": "p", "completion": "c", "id": i, "meta": {"a": [i]}} for i in range(3)]
    rows[1] = {**rows[1], "context": "x", "url": "u"}
    lines = [json.dumps(row) for row in rows]
    assert columnar(make_renderer, vocabulary, "chatml", lines, "prompt", ignore_keys=ignored)
    renderer = make_renderer("chatml", schema="prompt", ignore_keys=ignored)
    batch = renderer.render(whole_records(lines))
    odd = ("context",) * ("context" in ignored)
    assert unread(batch) == [("id", "meta"), (*odd, "id", "meta", "url"), ("id", "meta")]
    assert equal(batch, record_by_record(renderer, whole_records(lines), monkeypatch))


@pytest.mark.parametrize(
    "odd",
    ['"system_prompt": "s"', '"reasoning": "r"', '"history": [["a", "b"]]', '"label": "x"',
     '"images": ["i"]', '"tool_list": [{"name": "f"}]'],
)  # fmt: skip
def test_a_key_that_means_something_takes_the_long_way(make_renderer, vocabulary, odd):
    line = f'{{"prompt": "p", "completion": "c", {odd}}}'
    assert not columnar(make_renderer, vocabulary, "chatml", [PAIR, line], "prompt")


TURNS = '{"id": 1, "turns": [{"who": "CLIENT", "text": "u"}, {"who": "gpt", "text": "a"}]}'
NAMED = {"fields": ("content=text", "messages=turns", "role=who"), "role_names": ("client=user",)}


@pytest.mark.parametrize(
    ("odd", "is_short"),
    [
        (TURNS, True),
        ('{"turns": [{"who": "Client", "text": "u"}], "tags": ["x"]}', True),
        ('{"turns": [{"who": "client", "text": "u"}], "messages": null}', True),
        ('{"turns": [{"who": "nobody", "text": "u"}]}', False),
        ('{"turns": [{"role": "user", "content": "u"}]}', False),
        ('{"turns": [{"who": "client", "text": "u", "n": 1}]}', False),
        ('{"turns": [{"who": "client", "text": "u"}], "messages": [1]}', False),
        (DIALOG, False),
    ],
)
def test_turns_under_other_names_give_the_same_either_way(
    make_renderer, vocabulary, whole_records, monkeypatch, odd, is_short
):
    lines = [TURNS, odd]
    assert columnar(make_renderer, vocabulary, "chatml", lines, "messages", **NAMED) is is_short
    renderer = make_renderer("chatml", **NAMED)
    batch = renderer.render(whole_records(lines))
    assert equal(batch, record_by_record(renderer, whole_records(lines), monkeypatch))


def test_flat_records_under_other_names_take_the_long_way(make_renderer, vocabulary):
    named = {"fields": ("prompt=p",)}
    assert not columnar(make_renderer, vocabulary, "chatml", [PAIR], "prompt", **named)


def test_roles_in_any_case_go_the_short_way(make_renderer, vocabulary):
    line = DIALOG.replace("user", "USER").replace("assistant", "Assistant")
    assert columnar(make_renderer, vocabulary, "chatml", [DIALOG, line], "messages")
