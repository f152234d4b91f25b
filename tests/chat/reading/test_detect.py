from __future__ import annotations

import pytest

from tokmill.chat.conversation import ChatError
from tokmill.chat.reading.detect import detect_schema, resolve_schema
from tokmill.chat.reading.schemas import read_conversation
from tokmill.errors import UsageError
from tokmill.settings.sft import SftSettings

SETTINGS = SftSettings()
USER, REPLY = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
TEXT, ALPACA = {"text": "a"}, {"instruction": "q", "input": "", "output": "a"}


def refusal(record, schema="mixed", settings=SETTINGS):
    with pytest.raises(ChatError) as caught:
        read_conversation(record, schema, settings)
    return caught.value.reason, caught.value.message


@pytest.mark.parametrize(
    ("record", "schema"),
    [
        ({"messages": "[]"}, "messages"),
        ({"messages": [], "text": "rendered", "prompt": "p", "completion": "c"}, "messages"),
        ({"messages": None, "conversations": []}, "conversations"),
        ({"conversations": [], "instruction": "i", "output": "o"}, "conversations"),
        ({"prompt": [], "completion": []}, "prompt"),
        ({"question": "q", "answer": "a", "text": "t"}, "prompt"),
        ({"query": "q", "response": "a"}, "prompt"),
        ({"prompt": "p", "instruction": "i", "output": "o"}, "prompt"),
        ({"prompt": None, "instruction": "i", "output": "o"}, "alpaca"),
        ({"instruction": "i", "response": "o", "context": ""}, "alpaca"),
        ({"prompt": None, "completion": "c"}, "prompt"),
        ({"prompt": None, "completion": "c", "text": "t"}, "prompt"),
        ({"instruction": None, "input": "i", "output": "o"}, "alpaca"),
        ({"prompt": "p", "completion": None, "text": "t"}, "text"),
        ({"prompt": "p", "text": "t"}, "text"),
    ],
)
def test_the_first_schema_whose_fields_are_not_null_wins(record, schema):
    assert detect_schema([record]) == schema


def test_no_records_are_messages():
    assert detect_schema([]) == "messages"


def test_records_of_several_schemas_are_mixed():
    assert detect_schema([TEXT, ALPACA]) == "mixed"


def test_records_of_no_schema_at_all_are_a_mistake_that_names_keys_and_schemas():
    with pytest.raises(UsageError) as caught:
        detect_schema([{"input": "q", "output": "a"}, {"input": "q", "label": "x"}], "data.jsonl")
    assert str(caught.value) == (
        "data.jsonl: no known schema: found keys input, output, label; known: "
        "messages: messages; conversations: conversations; "
        "prompt: prompt | question | query and response | completion | answer | output; "
        "alpaca: instruction and output; text: text: rename the fields, or name them: --fields="
        "prompt=KEY,completion=KEY (under [sft]: fields = "
        '{prompt = "KEY", completion = "KEY"})'
    )


@pytest.mark.parametrize(
    ("record", "key"),
    [
        ({"prompt": "p", "chosen": "c", "rejected": "r"}, "chosen"),
        ({"prompt": "p", "chosen": "c"}, "chosen"),
        ({"chosen": [REPLY], "rejected": [REPLY]}, "chosen"),
        ({"messages": [USER, REPLY], "rejected": {"role": "assistant"}}, "rejected"),
        ({"messages": [USER, REPLY], "rejected_response": "r"}, "rejected_response"),
        ({"instruction": "i", "output": "o", "kto_tag": False}, "kto_tag"),
        ({"prompt": "p", "completion": "c", "label": True}, "label of good and bad answers (KTO)"),
        ({"prompt": "p", "completion": "c", "label": 0}, "label of good and bad answers (KTO)"),
        ({"question": "p", "answer": "c", "label": "False"}, "label of good and bad answers (KTO)"),
        ({"messages": [USER], "label": False}, "label of good and bad answers (KTO)"),
    ],
)
def test_preference_data_is_refused_with_the_reason(record, key):
    with pytest.raises(UsageError, match=r"^records: preference data, found ") as caught:
        resolve_schema(SETTINGS, [{"text": "t"}, record])
    assert f"found {key}: expected" in str(caught.value)
    reason, message = refusal(record)
    assert (reason, message) == ("preference data", str(caught.value).replace("records", "record"))
    assert refusal(record, "messages")[0] == "preference data"


@pytest.mark.parametrize(
    ("record", "schema"),
    [
        ({"text": "t", "label": 1}, "text"),
        ({"prompt": "p", "completion": "c", "label": "billing"}, "prompt"),
        ({"prompt": "p", "completion": "c", "label": None}, "prompt"),
        ({"messages": [USER], "label": 7}, "messages"),
        ({"messages": [USER], "rejected": False, "chosen": None}, "messages"),
        ({"messages": [USER], "kto_tag": None}, "messages"),
    ],
)
def test_a_key_that_only_looks_like_preference_data_is_ignored(record, schema):
    assert detect_schema([record]) == schema
    assert read_conversation(record, schema, SETTINGS).weights


def test_a_label_that_is_a_class_in_one_record_is_ignored_in_all():
    records = [{**ALPACA, "label": label} for label in (0, 1, 2)]
    settled = resolve_schema(SETTINGS, records)
    assert (settled.schema, settled.ignore_keys) == ("alpaca", ("label",))
    read = [read_conversation(record, "alpaca", settled) for record in records]
    assert [conversation.unread for conversation in read] == [("label",)] * 3


def test_the_option_ignores_a_label_of_good_and_bad():
    settings = SftSettings(ignore_keys=("label",))
    record = {**ALPACA, "label": "good"}
    assert resolve_schema(settings, [record]).schema == "alpaca"
    assert read_conversation(record, "alpaca", settings).unread == ("label",)
