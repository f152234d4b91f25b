"""Flags of other trainers under other names stop a run, or are told."""

from __future__ import annotations

import json

import pytest

from tokmill.chat.reading.detect import resolve_schema
from tokmill.chat.reading.flags import check_flags, flag_note
from tokmill.chat.reading.schemas import read_conversation
from tokmill.errors import UsageError
from tokmill.settings.sft import SftSettings

SETTINGS = SftSettings()
USER, REPLY = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


def chat(key, *values):
    turns = (USER, REPLY) * 3
    given = zip(turns, values, strict=False)
    return {"messages": [{**turn, key: value} for turn, value in given]}


def refusal(*records, settings=SETTINGS):
    with pytest.raises(UsageError) as caught:
        check_flags(records, settings, "a.jsonl")
    return str(caught.value)


@pytest.mark.parametrize(
    ("key", "values", "shown"),
    [
        ("trainable", (False, True), "false and true"),
        ("step_loss_mask", (0, 1), "0 and 1"),
        ("mask", (0, 0, 0, 1), "0 and 1"),
        ("is_masked", (True, True), "true"),
        ("loss_flag", (0.0, 1.0), "0.0 and 1.0"),
        ("learnable", (None, 1), "1"),
        ("supervised", (None, False), "false"),
    ],
)
def test_a_flag_of_training_that_nothing_reads_stops_the_run(key, values, shown):
    record = chat(key, *values)
    said = refusal({"messages": [USER, REPLY]}, record)
    assert f"a.jsonl: messages[].{key} has only flags ({shown}), and nothing reads it" in said
    assert f"--fields=weight={key} reads it" in said
    is_bool = all(isinstance(value, bool | None) for value in values)
    assert ("--fields=masked=" in said) == is_bool
    ignoring = SftSettings(ignore_keys=(key,))
    check_flags([record], ignoring, "a.jsonl")
    assert refusal({"conversations": record["messages"]}) == said
    assert refusal({"messages": json.dumps(record["messages"])}) == said


def test_a_flag_that_is_text_is_to_be_written_as_true_or_false():
    said = refusal(chat("trainOn", "false", "true"))
    assert "messages[].trainOn has only flags (false and true)" in said
    assert "write it as true or false, not as text; --ignore-keys=trainOn" in said


def test_the_options_that_are_named_read_the_flag():
    record = chat("trainable", False, True, True, False)
    for field, weights in (("weight", [None, 1, None, 0]), ("masked", [None, 0, None, 1])):
        settings = SftSettings(fields=(f"{field}=trainable",))
        check_flags([record], settings, "a.jsonl")
        settled = resolve_schema(settings, [record])
        read = read_conversation(record, settled.schema, settled)
        assert (read.weights, read.unread) == (weights, ())


@pytest.mark.parametrize("values", [[0, 1], [False, True], [None, 1]])
def test_a_list_of_flags_beside_the_messages_stops_the_run(values):
    said = refusal({"messages": [USER, REPLY], "loss_masks": values})
    assert "a.jsonl: loss_masks has only flags" in said
    assert "give each message its own, as weight; --ignore-keys=loss_masks" in said


@pytest.mark.parametrize("record", [{"messages": [USER]}, {"prompt": "q", "completion": "a"}])
def test_a_flag_of_a_record_stops_the_run_and_can_be_its_weight(record):
    records = [{**record, "train_on": 0}, record]
    assert "a.jsonl: train_on has only flags (0)" in refusal(*records)
    settings = SftSettings(fields=("weight=train_on",))
    check_flags(records, settings, "a.jsonl")
    settled = resolve_schema(settings, records)
    assert set(read_conversation(records[0], settled.schema, settled).weights) == {0.0}


@pytest.mark.parametrize(
    "record",
    [
        {"messages": [USER, {**REPLY, "train": False, "weight": 1}]},
        chat("training_note", "all", 1),
        chat("loss_mask_of", 2, 1),
        chat("trained_on", None, None),
        {"messages": [USER, REPLY], "mask_tokens": [0, 1, 1]},
        {"messages": [USER, REPLY], "train_split": "a"},
        {"text": "t", "weight": 1},
    ],
)
def test_what_is_read_or_no_flag_stops_nothing(record):
    check_flags([record], SETTINGS, "a.jsonl")
    assert flag_note([record], SETTINGS) == ""


@pytest.mark.parametrize(
    ("record", "note"),
    [
        (chat("reviewed", 0, 1), "messages[].reviewed (0 and 1)"),
        (chat("good", True, False), "messages[].good (false and true)"),
        (
            {"messages": [USER, {"role": "assistant", "content": [
                {"type": "text", "text": "a", "mask": 0}, {"type": "text", "text": "b", "mask": 1}
            ]}]},
            "messages[].content[].mask (0 and 1)",
        ),
    ],
)  # fmt: skip
def test_another_flag_has_a_sentence_of_its_own(record, note):
    assert flag_note([record], SETTINGS).startswith(f"flags that nothing reads: {note}; ")
    check_flags([record], SETTINGS, "a.jsonl")
    assert flag_note([chat("reviewed", 0, 0)], SETTINGS) == ""
