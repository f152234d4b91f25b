from __future__ import annotations

import json

import pytest

from tokmill.chat.conversation import ChatError, Conversation

EMPTY_TURN = [{"role": "user", "content": ""}]


def dialog(*contents: str, **fields):
    """Make a record of questions and answers in turn."""
    roles = ("user", "assistant")
    return {
        "messages": [{"role": roles[i % 2], "content": c} for i, c in enumerate(contents)],
        **fields,
    }


@pytest.fixture
def render(make_renderer, whole_records):
    """Render records, lines of JSON or what they stand for, as chatml."""

    def run(*records, template="plain", **settings):
        lines = [r if isinstance(r, str) else json.dumps(r, ensure_ascii=False) for r in records]
        return make_renderer(template, **settings).render(whole_records(lines))

    return run


def refusals(batch):
    return [(row, reject.place.line, reject.reason) for row, reject in batch.refused]


def drops(batch):
    return {reason: rows.tolist() for reason, rows in batch.drops.items()}


def test_records_become_samples_in_order_and_know_their_rows(render, shown):
    batch = render(dialog("a", "b"), dialog("c", "d", "e", "f"))
    assert shown(batch) == ["a«b<eos>»", "c«d<eos>»e«f<eos>»"]
    assert batch.rows.tolist() == [0, 1]
    assert batch.control.tolist() == [-1, -1, 0, -1, -1, 0, -1, -1, 0]
    assert batch.offsets.tolist() == [0, 3, 9]
    assert batch.turn_ends.tolist() == [False, False, True] * 3
    assert (list(batch.refused), drops(batch)) == ([], {})


def test_a_record_that_is_refused_leaves_its_neighbours_alone(render, shown):
    unknown = {"messages": [{"role": "robot", "content": "x"}]}
    batch = render(dialog("a", "b"), "{bad", unknown, dialog("c", "d", extra=1))
    assert shown(batch) == ["a«b<eos>»", "c«d<eos>»"]
    assert batch.rows.tolist() == [0, 3]
    assert refusals(batch) == [(1, 2, "malformed JSON"), (2, 3, "unknown role")]
    assert [reject.raw for _, reject in batch.refused] == [b"raw", b"raw"]


def test_a_record_without_text_is_refused(render, shown):
    batch = render({"messages": EMPTY_TURN}, dialog("a", "b"))
    assert shown(batch) == ["a«b<eos>»"]
    assert refusals(batch) == [(0, 1, "empty")]


def test_a_sample_for_every_turn_has_all_before_it_and_trains_the_last(render, shown):
    batch = render(dialog("a", "b", "c", "d"), dialog("e", "f"), samples="turn")
    assert shown(batch) == ["a«b<eos>»", "ab<eos>c«d<eos>»", "e«f<eos>»"]
    assert batch.rows.tolist() == [0, 0, 1]
    assert batch.turn_ends.nonzero()[0].tolist() == [2, 8, 11]


def test_a_sample_of_a_turn_keeps_its_weight(render, shown):
    record = dialog("a", "b", "c", "d")
    record["messages"][3]["weight"] = 0.5
    batch = render(record, samples="turn", weights="file")
    assert shown(batch) == ["a«b<eos>»", "ab<eos>c0.5«d<eos>»"]


def test_a_record_without_a_turn_to_train_is_a_drop(render, shown):
    batch = render(dialog("a"), dialog("a", "b", weight=0), dialog("c", "d"), samples="turn")
    assert shown(batch) == ["c«d<eos>»"]
    assert batch.rows.tolist() == [2]
    assert drops(batch) == {"no trained token": [0, 1]}
    assert list(batch.refused) == []


def test_a_record_whose_later_sample_fails_gives_none(render, shown):
    # This template takes one question and one answer, which the first turn alone is.
    records = dialog("a", "b"), dialog("c", "d", "e", "f"), dialog("g", "h")
    batch = render(*records, template="baby-llama2", samples="turn")
    assert shown(batch) == ["a<bos>«b<eos>»", "g<bos>«h<eos>»"]
    assert batch.rows.tolist() == [0, 2]
    assert refusals(batch) == [(1, 2, "not in this template")]
    assert len(batch.offsets) == 3
    assert len(batch.text) == len(batch.control) == len(batch.weights) == batch.offsets[-1]


@pytest.mark.parametrize("train", [(), ("+untrained-eos",), ("+eos",)])
def test_a_sample_that_ends_with_eos_gets_no_other_one(render, shown, train):
    assert shown(render(dialog("a", "b"), train=train)) == ["a«b<eos>»"]


def test_eos_behind_a_turn_that_is_not_trained_is_not_trained(render, shown):
    assert shown(render(dialog("a", "b", "c"), train=("+eos",))) == ["a«b<eos>»c<eos>"]


def test_a_conversation_is_rendered_by_itself_and_raises_what_is_wrong(make_renderer, shown):
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    renderer = make_renderer("baby-llama2", samples="turn")
    batch = renderer.render_conversation(Conversation(messages, [None, None]))
    assert shown(batch) == ["a<bos>«b<eos>»"]
    assert batch.rows.tolist() == [0]
    with pytest.raises(ChatError) as caught:
        renderer.render_conversation(Conversation(messages[:1], [None]))
    assert (caught.value.reason, caught.value.is_drop) == ("no trained token", True)
