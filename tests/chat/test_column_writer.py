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


def test_roles_in_any_case_go_the_short_way(make_renderer, vocabulary):
    line = DIALOG.replace("user", "USER").replace("assistant", "Assistant")
    assert columnar(make_renderer, vocabulary, "chatml", [DIALOG, line], "messages")
