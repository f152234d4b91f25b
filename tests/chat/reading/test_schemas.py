"""Records become conversations: which schema they have, and what is read of each."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.reading.detect import detect_schema, resolve_schema
from tokmill.chat.reading.schemas import parse_record, read_conversation
from tokmill.errors import UsageError
from tokmill.settings.sft import SftSettings

SETTINGS = SftSettings()
USER, REPLY = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
SYSTEM = {"role": "system", "content": "be"}
DIALOG = Conversation([USER, REPLY], [None, None])
FLAT = Conversation([USER, REPLY], [None, None])
SHAREGPT = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
EXAMPLES = {
    "messages": ({"messages": [USER, REPLY]}, DIALOG),
    "conversations": ({"conversations": SHAREGPT}, DIALOG),
    "prompt": ({"prompt": "q", "completion": "a"}, FLAT),
    "alpaca": ({"instruction": "q", "input": "", "output": "a"}, FLAT),
    "gemini": (
        {
            "contents": [
                {"role": r, "parts": [{"text": t}]} for r, t in [("user", "q"), ("model", "a")]
            ]
        },
        DIALOG,
    ),
    "responses": ({"input": "q", "output": [{"type": "message", **REPLY}]}, DIALOG),
    "text": ({"text": "a"}, Conversation([REPLY], [None], is_text=True)),
}


def refusal(record, schema="mixed", settings=SETTINGS):
    with pytest.raises(ChatError) as caught:
        read_conversation(record, schema, settings)
    return caught.value.reason, caught.value.message


@pytest.mark.parametrize("schema", EXAMPLES)
def test_every_schema_is_detected_and_read(schema):
    record, conversation = EXAMPLES[schema]
    assert detect_schema([record, record]) == schema
    assert read_conversation(record, schema, SETTINGS) == conversation
    assert read_conversation(record, "mixed", SETTINGS) == conversation


@pytest.mark.parametrize("schema", ["messages", "conversations"])
def test_a_conversation_without_messages_is_refused(schema):
    for empty in ([], "[]"):
        assert refusal({schema: empty, "system": "be"}, schema) == (
            "empty conversation",
            "record: expected messages, found an empty list",
        )
    for missing in ({}, {schema: None}):
        assert refusal({**missing, "id": 1}, schema)[0] == "no such fields"
    assert refusal({schema: ""}, schema)[0] == "no such fields"
    assert refusal({schema: {"role": "user"}}, schema)[0] == "wrong type"
    assert refusal({schema: "hello"}, schema)[0] == "broken messages"


@pytest.mark.parametrize("schema", ["messages", "conversations"])
def test_a_system_text_beside_the_messages_becomes_the_first(schema):
    record = {schema: [USER], "system": "be"}
    assert read_conversation(record, schema, SETTINGS) == Conversation([SYSTEM, USER], [None, None])


@pytest.mark.parametrize(
    ("messages", "system"),
    [
        ([{"role": "system", "content": "mine"}, USER], "be"),
        ([{"role": "developer", "content": "mine"}, USER], "be"),
        ([USER], ""),
        ([USER], None),
    ],
)
def test_a_system_text_beside_the_messages_gives_way_to_their_own(messages, system):
    record = {"messages": messages, "system": system}
    assert read_conversation(record, "messages", SETTINGS).messages == messages


TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    "record",
    [
        {"messages": [USER], "tools": [TOOL]},
        {"messages": [USER], "functions": json.dumps([{"name": "f"}])},
        {"messages": [{**USER, "tools": "[{\"name\": \"f\"}]"}]},
        {"messages": json.dumps([{**USER, "tools": [TOOL]}])},
    ],
)  # fmt: skip
def test_tools_come_from_the_record_or_its_first_message(record):
    assert read_conversation(record, "messages", SETTINGS) == Conversation([USER], [None], [TOOL])


def test_a_conversational_prompt_is_not_trained():
    record = {"prompt": [USER, REPLY, USER], "completion": [REPLY, {**REPLY, "train": False}]}
    assert read_conversation(record, "prompt", SETTINGS) == Conversation(
        [USER, REPLY, USER, REPLY, REPLY], [0.0, 0.0, 0.0, None, 0.0]
    )


@pytest.mark.parametrize(
    "record",
    [
        {"prompt": [USER], "completion": "a"},
        {"prompt": "q", "completion": [REPLY]},
        {"prompt": USER, "completion": {"from": "gpt", "value": "a"}},
        {"question": [USER], "answer": "a"},
        {"prompt": {"role": ["user"], "content": ["q"]}, "response": REPLY},
    ],
)
def test_one_half_of_a_sample_may_be_a_text_and_the_other_messages(record):
    assert read_conversation(record, "mixed", SETTINGS) == Conversation([USER, REPLY], [0.0, None])


@pytest.mark.parametrize(
    ("record", "reason", "message"),
    [
        ({"prompt": [], "completion": []}, "empty conversation",
         "record: expected messages, found an empty list"),
        ({"prompt": [USER], "completion": 3}, "wrong type", "completion: expected text, found 3"),
        ({"prompt": 3, "completion": [REPLY]}, "wrong type", "prompt: expected text, found 3"),
        ({"prompt": [USER], "completion": None}, "no such fields", "record: expected response or "
         "completion or answer or output, found keys prompt, completion"),
        ({"prompt": [USER, {**REPLY, "train": True}], "completion": [REPLY]},
         "contradictory weights", "prompt message 2: expected no weight in a prompt, which is not "
         "trained, found 1.0"),
        ({"prompt": [USER], "completion": [{"role": "bot", "content": "a"}]}, "unknown role",
         "completion message 1: expected a role of system, developer, user, human, assistant, gpt, "
         "model, chatgpt, bing, bard, tool, function, observation, ipython, environment, "
         "function_response, tool_response, function_call, tool_call, found 'bot': say who that is "
         "(tool, user, "
         "system, assistant; drop leaves it out): --role-names bot=ROLE"),
    ],
)  # fmt: skip
def test_broken_conversational_prompts_are_refused(record, reason, message):
    assert refusal(record, "prompt") == (reason, message)


@pytest.mark.parametrize(
    ("text", "reason", "message"),
    [
        ("{", "malformed JSON", "record: expected JSON, found '{': expecting property name "
         "enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[1]", "wrong type", "record: expected an object, found a list of 1"),
        ("null", "wrong type", "record: expected an object, found null"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_object_is_refused(text, reason, message):
    with pytest.raises(ChatError) as caught:
        parse_record(text)
    assert (caught.value.reason, caught.value.message) == (reason, message)


FIELDS = ["messages", "conversations", "prompt", "completion", "instruction", "output", "text"]
VALUES = st.none() | st.text(max_size=3) | st.integers(0, 2) | st.just([]) | st.just([USER, REPLY])
RECORDS = st.dictionaries(
    st.sampled_from([*FIELDS, "input", "history", "system", "tools", "weight", "label", "chosen"]),
    VALUES,
    max_size=5,
)


@given(RECORDS)
def test_every_record_becomes_a_conversation_or_has_a_reason(record):
    for schema in (*EXAMPLES, "mixed"):
        try:
            read = read_conversation(record, schema, SETTINGS)
        except ChatError as error:
            outcome = (bool(error.reason), "\n" not in error.message)
        else:
            outcome = (len(read.messages) > 0, len(read.messages) == len(read.weights))
        assert outcome == (True, True)


@given(RECORDS)
def test_mixed_reads_a_record_as_the_schema_that_is_detected_for_it_alone(record):
    try:
        schema = detect_schema([record])
    except UsageError:
        assert refusal(record)[0] in ("no such fields", "preference data")
        return
    results = []
    for name in (schema, "mixed"):
        try:
            results.append(read_conversation(record, name, SETTINGS))
        except ChatError as error:
            results.append((error.reason, error.message))
    assert results[0] == results[1]


def test_a_record_of_another_schema_says_which_and_what_to_do():
    with pytest.raises(ChatError) as caught:
        read_conversation({"instruction": "a", "output": "b"}, "messages", SftSettings())
    assert caught.value.reason == "no such fields"
    assert caught.value.message == (
        "record: expected messages, found keys instruction, output: a record of schema alpaca "
        "among those of messages: use --schema mixed"
    )


@pytest.mark.parametrize(
    "record", [{"messages": [USER, REPLY]}, {"prompt": [USER], "completion": [REPLY]}]
)
def test_a_history_beside_messages_comes_before_them_and_behind_their_system(record):
    beside = {"history": [["p", "r"]], "system_message": "be"}
    read = read_conversation({**record, **beside}, "mixed", SETTINGS)
    said = [{"role": "user", "content": "p"}, {"role": "assistant", "content": "r"}]
    assert read.messages == [SYSTEM, *said, USER, REPLY]
    trained = [None] * 5 if "messages" in record else [0.0] * 4 + [None]
    assert read.weights == trained


def test_keys_that_nothing_reads_are_noted_inside_messages_too():
    record = {"messages": [{**USER, "id": 1}, REPLY], "url": "u", "context": "c", "note": None}
    read = read_conversation(record, "messages", SETTINGS)
    assert read.unread == ("context", "messages[].id", "url")
    pair = {"prompt": [USER], "completion": [REPLY], "reasoning": "hm"}
    assert read_conversation(pair, "prompt", SETTINGS).unread == ("reasoning",)


@pytest.mark.parametrize("where", ["record", "message 1"])
def test_images_are_refused_in_a_record_and_in_a_message(where):
    images = {"images": ["a.png"]}
    record = {"messages": [USER, REPLY], **images}
    if where == "message 1":
        record = {"messages": [{**USER, **images}, REPLY]}
    assert refusal(record, "messages") == (
        "images",
        f"{where}: expected text alone, found images, a list of 1: "
        "--ignore-keys images trains on the text as it stands",
    )
    read = read_conversation(record, "messages", SftSettings(ignore_keys=("images",)))
    assert (read.messages, len(read.unread)) == ([USER, REPLY], 1)


def test_keys_in_parts_of_messages_that_nothing_reads_are_told():
    parts = [{"type": "text", "text": "a", "train": True, "id": 7, "note": None}]
    thoughts = [{"type": "text", "text": "r", "cache": {"n": 1}}]
    reply = {"role": "assistant", "content": parts, "reasoning_content": thoughts, "x": 1}
    asked = {"role": "user", "content": [{"type": "text", "text": "q", "at": 3}]}
    read = read_conversation({"messages": [asked, reply]}, "messages", SETTINGS)
    keys = ("content[].at", "content[].id", "reasoning_content[].cache", "x")
    assert read.unread == tuple(f"messages[].{key}" for key in keys)


@pytest.mark.parametrize("name", ["system", "system_prompt"])
def test_a_system_text_beside_a_system_message_is_told_unless_it_says_the_same(name):
    system = {"role": "system", "content": "s"}
    for text, unread in (("other", (name,)), ("s", ()), ("", ())):
        record = {"messages": [system, USER, REPLY], name: text}
        read = read_conversation(record, "messages", SETTINGS)
        assert (read.messages[0], read.unread) == (system, unread)
    named = SftSettings(fields=("system=sys",))
    record = {"messages": [system, USER, REPLY], "sys": "other"}
    assert read_conversation(record, "messages", named).unread == ("sys",)


TEXT, ALPACA = {"text": "a"}, {"instruction": "q", "input": "", "output": "a"}


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
        ({"contents": [{"parts": [{"text": "q"}]}], "prompt": "p"}, "gemini"),
        ({"contents": json.dumps([{"role": "user", "parts": []}])}, "gemini"),
        ({"input": [{"type": "reasoning"}], "output": None}, "responses"),
        ({"input": [USER], "output": "a"}, "responses"),
        ({"input": "q", "output": json.dumps([REPLY])}, "responses"),
        ({"input": [{"type": "PERSON"}], "text": "t"}, "text"),
        ({"contents": [{"title": "a"}], "text": "t"}, "text"),
    ],
)
def test_the_first_schema_whose_fields_are_not_null_wins(record, schema):
    assert detect_schema([record]) == schema


@pytest.mark.parametrize(
    "record",
    [
        {"input": "q", "output": [{"label": "x", "score": 1}]},
        {"input": "q", "output": [{"type": "PERSON", "start": 0}]},
        {"input": [], "output": "[{"},
        {"contents": [{"title": "a"}]},
        {"contents": "a"},
    ],
)
def test_lists_of_other_objects_are_no_chat(record):
    with pytest.raises(UsageError, match="no known schema"):
        detect_schema([record])


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
        "alpaca: instruction and output; gemini: contents; "
        "responses: input and output, lists of items; text: text: rename the fields, or name "
        "them: --fields=prompt=KEY,completion=KEY (under [sft]: fields = "
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


TOOL_REPLY = {"from": "observation", "value": "7"}
GPT = {"from": "gpt", "value": "chosen"}
BOTH = {"chosen": GPT, "rejected": {"from": "gpt", "value": "rejected"}}
WHOLE = [USER, {"role": "assistant", "content": "chosen"}]


@pytest.mark.parametrize(
    "record",
    [
        {"conversations": SHAREGPT[:1], **BOTH},
        {"conversations": json.dumps(SHAREGPT[:1]), **BOTH, "system": "be", "tools": [TOOL]},
        {"conversations": [*SHAREGPT, SHAREGPT[0], TOOL_REPLY], **BOTH},
        {"messages": [USER], "chosen": WHOLE[1], "rejected": REPLY},
        {"messages": [USER], "chosen": [WHOLE[1]], "rejected": [REPLY]},
        {"messages": [USER], "chosen": "chosen", "rejected": "rejected"},
        {"messages": [USER], "chosen": WHOLE, "rejected": [USER, REPLY]},
        {"dialogue": [USER], **BOTH},
        {"prompt": "q", **BOTH},
        {"prompt": [USER], **BOTH},
        {"instruction": "q", "input": "", **BOTH},
        {"instruction": "q", "chosen": "chosen", "rejected": "rejected"},
        {"chosen": WHOLE, "rejected": [USER, REPLY]},
        {"chosen": "q: chosen", "rejected": "q: rejected"},
        {"messages": WHOLE, "rejected_response": "rejected"},
        {"conversations": [SHAREGPT[0], GPT], "kto_tag": True},
        {"messages": WHOLE, "label": True},
        {"prompt": "q", "completion": "chosen", "label": "desirable"},
    ],
)
def test_the_option_that_a_preference_row_names_trains_on_its_chosen_reply(record):
    with pytest.raises(UsageError, match="preference data") as caught:
        resolve_schema(SETTINGS, [record])
    advice = re.search(r"--(fields|ignore-keys)=(\S+) trains", str(caught.value))
    assert advice is not None
    option = {advice[1].replace("-", "_"): tuple(advice[2].split(","))}
    settled = resolve_schema(SftSettings(**option), [record])
    conversation = read_conversation(record, settled.schema, settled)
    assert conversation.messages[-1]["content"].endswith("chosen")
    assert conversation.weights[-1] is None
    assert "rejected" not in str(conversation.messages)


@pytest.mark.parametrize("key", ["kto_tag", "label"])
@pytest.mark.parametrize(
    ("good", "bad"),
    [(True, False), (1, 0), (1.0, 0.0), ("true", "False"), ("desirable", "undesirable"),
     ("thumbs up", "Thumbs-Down"), ("👍", "👎")],
)  # fmt: skip
def test_a_rating_is_read_as_the_weight_of_its_record(key, good, bad):
    settings = SftSettings(fields=(f"weight={key}",))
    for record in ({"messages": [USER, REPLY]}, {"prompt": "q", "completion": "a"}):
        settled = resolve_schema(settings, [{**record, key: good}, {**record, key: bad}])
        read = [
            read_conversation({**record, key: label}, settled.schema, settled)
            for label in (good, bad)
        ]
        assert [conversation.weights[-1] for conversation in read] == [None, 0.0]


def test_a_rating_of_another_word_is_no_weight():
    settings = SftSettings(fields=("weight=kto_tag",))
    record = {"messages": [USER, REPLY], "kto_tag": "so so"}
    assert refusal(record, "messages", settings)[0] == "wrong type"


@pytest.mark.parametrize("bad", [False, 0, 0.0, "false", "False", "bad"])
def test_a_bad_answer_is_left_out_also_if_its_rating_is_ignored(bad):
    settings = SftSettings(ignore_keys=("kto_tag",))
    for good in (True, 1, "true", None, "so so"):
        record = {"messages": [USER, REPLY], "kto_tag": good}
        assert read_conversation(record, "messages", settings).weights == [None, None]
    with pytest.raises(ChatError) as caught:
        read_conversation({"messages": [USER, REPLY], "kto_tag": bad}, "messages", settings)
    assert caught.value.is_drop
    assert caught.value.reason == "bad answer (kto_tag)"


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
