from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokmill.chat import renderer as renderer_module
from tokmill.chat.learned.pattern import Pattern
from tokmill.chat.learned.writer import LearnedWriter
from tokmill.chat.reading.columns import read_regular
from tokmill.chat.renderer import ChatRenderer
from tokmill.errors import ParityError
from tokmill.values import SampleBatch

texts = st.text(max_size=8) | st.sampled_from([
    "", " ", "\n", " a", "b\n", "\n\nc", "\x1c\u3000x\u2029", "<|im_end|>", "<think>a</think>b",
    "a</think>b", "<", "<|im_", "ASSISTANT:", "Zq0000qZ", "\ue000", "\ue001x", "{{ x }}", "user",
])  # fmt: skip
roles = st.sampled_from(["system", "user", "assistant", "developer", "tool"])
message = st.fixed_dictionaries({"role": roles, "content": texts})
dialogs = st.lists(message, min_size=1, max_size=5)
turns = st.lists(st.tuples(texts, texts), min_size=1, max_size=3).map(
    lambda pairs: [
        {"role": role, "content": text}
        for pair in pairs
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]
)
records = st.fixed_dictionaries(
    {"messages": turns | dialogs},
    optional={
        "id": st.none() | st.sampled_from(["", "u"]),
        "tools": st.none() | st.just([{"type": "function", "function": {"name": "f"}}]),
        "weight": st.sampled_from([0, 1, None]),
        "url": st.just("x"),
    },
)


def lines_of(rows: Sequence[Any]) -> list[str]:
    return [json.dumps(row, ensure_ascii=False) for row in rows]


def described(batch: SampleBatch) -> dict[str, Any]:
    keys = batch.unread_keys
    return {
        "text": batch.text.to_pylist(),
        "offsets": batch.offsets.tolist(),
        "control": batch.control.tolist(),
        "weights": batch.weights.tolist(),
        "turn_ends": batch.turn_ends.tolist(),
        "rows": batch.rows.tolist(),
        "refused": [(row, reject.reason, reject.message) for row, reject in batch.refused],
        "drops": {reason: rows.tolist() for reason, rows in batch.drops.items()},
        "counters": {name: n.tolist() for name, n in batch.counters.items() if n.any()},
        "unread": [
            () if keys is None or keys.of_row[row] < 0 else keys.sets[keys.of_row[row]]
            for row in batch.rows.tolist()
        ],
    }


def record_by_record(renderer: ChatRenderer, found, monkeypatch) -> SampleBatch:
    with monkeypatch.context() as patch:
        patch.setattr(renderer_module, "read_regular", lambda *_: None)
        batch: SampleBatch = renderer.render(found)
    return batch


@pytest.mark.parametrize("preset", ["tokmill", "trl", "llamafactory"])
def test_learned_and_rendered_records_give_the_same_samples(
    make_renderer, whole_records, monkeypatch, source, preset
):
    renderer = make_renderer(source, preset=preset)
    assert renderer._learned is not None

    @settings(max_examples=25, deadline=None)
    @given(st.lists(records, min_size=1, max_size=6))
    def check(rows):
        found = whole_records(lines_of(rows))
        assert described(renderer.render(found)) == described(
            record_by_record(renderer, found, monkeypatch)
        )

    check()


@pytest.mark.parametrize("chosen", [{"turns": "everything"}, {"append_eos": "train"}])
def test_settings_of_segments_hold_for_learned_records(
    make_renderer, whole_records, monkeypatch, source, chosen
):
    renderer = make_renderer(source, **chosen)
    found = whole_records(lines_of([chat("Hi", "Ho"), chat(" Hi", "Ho\n", "You", "Me")]))
    here = described(renderer.render(found))
    assert learned_rows(renderer, lines_of([chat("Hi", "Ho")])) == [0]
    assert here == described(record_by_record(renderer, found, monkeypatch))


def chat(*contents: str) -> dict[str, Any]:
    return {
        "messages": [
            {"role": ("user", "assistant")[i % 2], "content": content}
            for i, content in enumerate(contents)
        ]
    }


def learned_rows(renderer: ChatRenderer, lines: list[str]) -> list[int]:
    """Return the rows that are not rendered, checks aside."""
    text = pa.array(lines, pa.large_string())
    regular = read_regular(text, "messages", renderer._settings)
    rendered: list[str] = []

    def render(rest):
        rendered.extend(rest.to_pylist())
        return renderer.writer.write(rest)

    assert renderer._learned is not None
    if regular is None or renderer._learned.write(regular, text, render) is None:
        return []
    return [i for i, line in enumerate(lines) if line not in rendered]


@pytest.mark.parametrize(
    "odd",
    [
        chat("", "x"),
        chat(" \n", "x"),
        chat("x", "<|im_end|>"),
        chat("<think>", "y"),
        chat("x", "y</think>"),
        chat("x", "\ue000"),
        chat(*["x", "y"] * 65),
    ],
)
def test_only_records_outside_of_what_was_learned_are_rendered(make_renderer, sources, odd):
    renderer = make_renderer(sources["chatml"])
    lines = lines_of([chat("a", "b"), odd, chat("c", "d"), chat(" c", "d\n")])
    assert learned_rows(renderer, lines) == [0, 2, 3]


def test_records_with_other_keys_are_rendered_and_the_rest_of_their_block_is_not(
    make_renderer, whole_records, sources, monkeypatch
):
    renderer = make_renderer(sources["chatml"])
    call = {"type": "function", "function": {"name": "f", "arguments": {}}}
    odd = chat("a", "b")
    odd["messages"][1]["tool_calls"] = [call]
    rows = [{**chat("a", "b"), "id": "x"}, {**odd, "url": "y", "id": 3}, chat("a", "b"), odd]
    rendered: list[str] = []

    def render(text):
        rendered.extend(text.to_pylist())
        return renderer.writer.write(text)

    monkeypatch.setattr(renderer, "write", render)
    found = whole_records(lines_of(rows))
    here = described(renderer.render(found))
    assert rendered == [lines_of(rows)[i] for i in (1, 3)]
    assert here == described(record_by_record(renderer, found, monkeypatch))
    assert here["unread"] == [("id",), ("id", "url"), (), ()]


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("{% for m in messages %}{% if m.content|length > 9 %}long{% endif %}{{ m.content }}"
         "{{ eos_token }}{% endfor %}", {}),
        ("chatml", {"spans": "prefix"}),
        ("last is other", {"spans": "tags"}),
        ("chatml", {"schema": "text", "rendered_text": "wrap"}),
    ],
)  # fmt: skip
def test_some_templates_and_settings_have_every_record_rendered(
    make_renderer, sources, name, chosen
):
    assert make_renderer(sources.get(name, name), **chosen)._learned is None


def falsified(patterns: dict[Any, Pattern | None]) -> None:
    """Change a literal of every pattern, as if it had been learned wrong."""
    for pattern in patterns.values():
        assert pattern is not None
        pattern.pieces[-1] += "!"  # type: ignore[index]


def test_a_wrong_pattern_ends_the_run_at_a_record_that_its_hash_chooses(make_renderer, sources):
    renderer = make_renderer(sources["trims"])
    learned: LearnedWriter = renderer._learned
    rows = lines_of([chat(f"a{i}", "b") for i in range(1000)])
    assert len(learned_rows(renderer, rows)) == 1000
    falsified(learned._patterns)
    assert len(learned_rows(renderer, rows[:1])) == 1
    with pytest.raises(ParityError, match="what was learned from this template differs"):
        learned_rows(renderer, rows)


def test_samples_do_not_depend_on_blocks(make_renderer, whole_records, source):
    rows = [chat("a", "b"), chat("", "b"), chat("a", "b", "c", "d"), chat(" a", "\nb")]
    lines = lines_of(rows * 5)
    at_once = make_renderer(source).render(whole_records(lines))
    renderer = make_renderer(source)
    parts = [renderer.render(whole_records([line])) for line in lines]
    assert at_once.text.to_pylist() == [t for part in parts for t in part.text.to_pylist()]
    assert np.array_equal(at_once.weights, np.concatenate([part.weights for part in parts]))
