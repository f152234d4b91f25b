from __future__ import annotations

import pytest

from tokmill.chat.conversation import ChatError
from tokmill.chat.names import check_names, role_of
from tokmill.chat.reading.schemas import read_conversation
from tokmill.errors import UsageError
from tokmill.settings.sft import SftSettings

PAIR = {"question": "q", "answer": "a"}
USER, REPLY = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


@pytest.mark.parametrize(
    ("record", "schema", "unread"),
    [
        (PAIR, "prompt", ()),
        ({**PAIR, "url": "u", "id": 0}, "prompt", ("id", "url")),
        ({**PAIR, "context": "c", "system_prompt": "s", "thinking": "t"}, "prompt", ()),
        ({**PAIR, "context": "c", "input": "i"}, "prompt", ("context",)),
        ({**PAIR, "response": "", "output": "o"}, "prompt", ("output",)),
        ({"prompt": "p", "instruction": "i", "input": "x", "output": "o"}, "prompt",
         ("input", "instruction")),
        ({"instruction": "i", "input": "x", "output": "o", "label": "class"}, "alpaca", ("label",)),
        ({"messages": [USER], "system": "s", "history": [["a", "b"]], "weight": 0}, "messages", ()),
        ({"messages": [USER], "prompt": "p"}, "messages", ("prompt",)),
        ({"text": "t", "system": "s"}, "text", ("system",)),
        ({"text": "t", "": "unnamed"}, "text", ("",)),
    ],
)  # fmt: skip
def test_what_a_schema_does_not_read_is_told(record, schema, unread):
    assert read_conversation(record, schema, SftSettings()).unread == unread


def test_a_key_that_is_ignored_is_not_read_and_another_takes_its_place():
    record = {"question": "q", "answer": "a", "input": "i", "context": "c"}
    read = read_conversation(record, "prompt", SftSettings(ignore_keys=("input",)))
    assert read.unread == ("input",)
    assert read.messages[0]["content"] == "q\nc"


def test_names_of_roles_that_are_given_win_over_known_ones():
    given = ("Agent=assistant", "system=assistant")
    assert [role_of(said, given) for said in ("AGENT", " aGent ", "SYSTEM", "user", "nobody")] == [
        "assistant", "assistant", "assistant", "user", None
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"fields": ("speaker",)}, "sft.fields: expected pairs such as role=speaker, found 'sp"),
        ({"fields": ("speaker=role",)}, "sft.fields: expected a field of messages, prompt, compl"),
        ({"role_names": ("bot",)}, "sft.role_names: expected pairs such as bot=assistant"),
        ({"role_names": ("bot=robot",)}, "sft.role_names: bot: expected a role of system, devel"),
    ],
)
def test_names_that_are_no_pairs_are_refused(settings, said):
    with pytest.raises(UsageError) as caught:
        check_names(SftSettings(**settings))
    assert str(caught.value).startswith(said)


def test_records_are_read_under_the_names_given():
    fields = ("content=utterance", "messages=dialogue", "role=speaker", "system=persona")
    settings = SftSettings(fields=fields, role_names=("agent=assistant", "client=user"))
    turns = [{"speaker": "Client", "utterance": "q"}, {"speaker": "AGENT", "utterance": "a"}]
    read = read_conversation({"dialogue": turns, "persona": "be"}, "messages", settings)
    assert read.messages == [{"role": "system", "content": "be"}, USER, REPLY]
    flat = SftSettings(fields=("completion=Response", "prompt=Question", "reasoning=Complex_CoT"))
    record = {"Question": "q", "Complex_CoT": "hm", "Response": "a"}
    read = read_conversation(record, "prompt", flat)
    assert read.messages == [USER, {**REPLY, "reasoning_content": "hm"}]


def test_messages_of_a_dropped_name_are_left_out_and_told_and_so_is_a_system_text():
    settings = SftSettings(role_names=("note=drop", "system=drop"))
    odd = {"from": "Note", "value": {"any": 1}, "images": ["x.png"], "weight": "x"}
    system = {"role": "system", "content": "s"}
    record = {"messages": [odd, system, USER, REPLY], "system": "t", "history": [system]}
    read = read_conversation(record, "messages", settings)
    assert (read.messages, len(read.weights)) == ([USER, REPLY], 2)
    assert read.unread == ("messages[].role=Note", "messages[].role=system")
    pair = {"messages": [{"system": "s", "note": "n", "human": "q", "gpt": "a"}]}
    assert read_conversation(pair, "messages", settings).messages == [USER, REPLY]
    assert read_conversation({**PAIR, "system": "t"}, "prompt", settings).messages == [USER, REPLY]
    with pytest.raises(ChatError) as caught:
        read_conversation(
            {"messages": [system, odd], "history": [["q", "a"]]}, "messages", settings
        )
    assert (caught.value.reason, caught.value.is_drop) == ("no message left", True)
