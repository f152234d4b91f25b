"""Traces of agents give the same samples in every format."""

from __future__ import annotations

import json

import pytest

from tests.chat.reading.agent_traces import FORMATS, as_messages, make_trace
from tokmill.chat.reading.schemas import parse_record, read_conversation
from tokmill.settings.sft import SftSettings

SETTINGS = SftSettings()
N_TRACES = 60


@pytest.mark.parametrize("name", FORMATS)
def test_a_trace_becomes_the_messages_that_a_template_expects(name):
    write, leave_out = FORMATS[name]
    for seed in range(N_TRACES):
        trace = make_trace(seed)
        record = parse_record(json.dumps(write(trace)))
        expected = as_messages(trace, **leave_out)
        read = read_conversation(record, "mixed", SETTINGS)
        # Further keys of a format reach the template, too.
        further = ("id", "status")
        messages = [{k: v for k, v in m.items() if k not in further} for m in read.messages]
        if name == "sharegpt":  # a reply's own tags are the template's to read
            messages = [with_reasoning(message) for message in messages]
        assert messages == expected["messages"]
        assert read.tools == expected["tools"]
        assert read.weights == [None] * len(messages)


def with_reasoning(message):
    opens, closes = "<think>\n", "\n</think>\n\n"
    if not message["content"].startswith(opens):
        return message
    reasoning, _, text = message["content"].removeprefix(opens).partition(closes)
    return {**message, "content": text, "reasoning_content": reasoning}


@pytest.mark.parametrize("name", FORMATS)
def test_samples_of_traces_are_those_of_their_messages(name, make_renderer, whole_records, shown):
    write, leave_out = FORMATS[name]
    traces = [make_trace(seed) for seed in range(N_TRACES)]

    def samples(records):
        renderer = make_renderer("chatml", schema="mixed")
        rendered = renderer.render(whole_records([json.dumps(record) for record in records]))
        assert rendered.refused == []
        return shown(rendered)

    expected = samples([as_messages(trace, **leave_out) for trace in traces])
    assert len(expected) == N_TRACES
    assert samples([write(trace) for trace in traces]) == expected
