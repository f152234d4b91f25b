from __future__ import annotations

import json
import tomllib

import pytest

from tokmill.chat.conversation import ChatError
from tokmill.chat.reading.detect import resolve_schema
from tokmill.chat.reading.schemas import read_conversation
from tokmill.errors import UsageError
from tokmill.settings.load import build_config
from tokmill.settings.sft import SftSettings

SETTINGS = SftSettings()
USER, REPLY = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


@pytest.mark.parametrize(
    "record",
    [
        {"dialogue": [{"speaker": "USER", "utterance": "q"}, {"speaker": "Model",
                                                              "utterance": "a"}]},
        {"id": 1, "turns": [{"author": "human", "text": "q", "n": 1}, {"author": "gpt",
                                                                       "text": "a", "n": 2}]},
        {"chat": json.dumps([USER, REPLY])},
        {"conversation": [{"human": "q", "assistant": "a"}]},
        {"messages": [{"role": "user", "text": "q"}, {"role": "assistant", "text": "a"}]},
    ],
)  # fmt: skip
def test_turns_and_their_keys_have_several_names(record):
    settled = resolve_schema(SETTINGS, [record, record])
    assert (settled.schema, settled.fields) == ("messages", ())
    read = read_conversation(record, "messages", settled)
    texts = [{key: message[key] for key in USER} for message in read.messages]
    assert texts == [USER, REPLY]
    assert read.unread == (("id", "turns[].n") if "id" in record else ())


@pytest.mark.parametrize(
    "record",
    [
        {"messages": [USER, REPLY], "turns": [USER, REPLY]},
        {"conversations": [{"from": "human", "value": "q"}]},
        {"messages": [{"human": "q", "assistant": "a"}]},
        {"question": "q", "answer": "a", "turns": [USER]},
        {"text": "t", "turns": [USER]},
    ],
)
def test_what_is_known_already_stays_as_it_is(record):
    assert resolve_schema(SETTINGS, [record]).fields == ()


@pytest.mark.parametrize(
    "record",
    [
        {"prompt": [USER, REPLY, USER], "completion": "a"},
        {"prompt": "q", "completion": [REPLY]},
        {"dialogue": [USER, REPLY], "answer": "a"},
    ],
)
def test_turns_that_are_half_a_sample_are_not_taken_for_all_of_it(record):
    said = ""
    try:
        settled = resolve_schema(SETTINGS, [record])
    except UsageError as error:
        said = str(error)
    else:
        assert (settled.schema, settled.fields) == ("prompt", ())
    assert "messages=" not in said


@pytest.mark.parametrize("roles", [("prompter", "assistant"), ("user", "assistant"), ("Human",)])
def test_records_that_are_one_message_each_do_not_become_replies(roles):
    records = [{"text": "t", "role": role, "parent_id": "x"} for role in roles]
    with pytest.raises(
        UsageError, match=rf"each record is one message \(role: {roles[0]}"
    ) as caught:
        resolve_schema(SETTINGS, records)
    assert "--schema=text" in str(caught.value)
    assert resolve_schema(SftSettings(schema="text"), records).schema == "text"
    assert resolve_schema(SETTINGS, [*records, {"text": "t"}]).schema == "text"


def test_turns_of_user_and_system_alone_are_refused_with_what_to_write():
    turns = [{"speaker": "USER", "utterance": "q"}, {"speaker": "SYSTEM", "utterance": "a"}]
    with pytest.raises(UsageError, match="--role-names=system=assistant"):
        resolve_schema(SETTINGS, [{"turns": turns}])
    named = SftSettings(role_names=("system=assistant",))
    settled = resolve_schema(named, [{"turns": turns}])
    assert read_conversation({"turns": turns}, "messages", settled).messages == [USER, REPLY]
    system_only = [{"messages": [{"role": "system", "content": "be"}, USER]}]
    assert resolve_schema(SETTINGS, system_only).schema == "messages"


TURNS = [{"speaker": "client", "utterance": "q"}, {"speaker": "agent", "utterance": "a"}]


def refusal(*records):
    with pytest.raises(UsageError) as caught:
        resolve_schema(SETTINGS, records, "data.jsonl")
    return str(caught.value)


def test_turns_of_unknown_names_are_named_with_what_to_copy():
    said = refusal({"id": 1, "dialogue": TURNS})
    assert said == (
        "data.jsonl: unknown roles in every record: name them (NAME=drop leaves one out): "
        "--role-names=client=user,agent=assistant "
        '(under [sft]: role_names = {client = "user", agent = "assistant"})'
    )
    said = refusal({"id": 1, "lines": [{"who": t["speaker"], "said": "x"} for t in TURNS]})
    assert "found keys id, lines[]: who, said; known:" in said
    assert said.endswith(
        "rename the fields, or name them: --fields=messages=lines,role=KEY,content=KEY "
        '(under [sft]: fields = {messages = "lines", role = "KEY", content = "KEY"})'
    )
    assert "name them: --fields=messages=lines (" in refusal({"lines": [USER, REPLY]})


@pytest.mark.parametrize("first", ["agent", "user", "client"])
def test_of_unknown_roles_the_first_speaker_is_advised_as_the_user(first):
    said = refusal({"dialogue": [{"role": first, "content": "q"}, {"role": "x", "content": "a"}]})
    unknown = "" if first == "user" else f"{first}=user,"
    assert f"leaves one out): --role-names={unknown}x=assistant (" in said


def test_the_advice_can_be_copied_into_a_file():
    said = refusal({"dialogue": TURNS})
    lines = said.partition("under [sft]: ")[2].removesuffix(")").replace(" and ", "\n")
    config = build_config(tomllib.loads(f"[sft]\n{lines}"), where="file")
    assert config.sft is not None
    settled = resolve_schema(config.sft, [{"dialogue": TURNS}])
    assert (settled.schema, settled.role_names) == ("messages", ("agent=assistant", "client=user"))
    with pytest.raises(UsageError, match=r"^--fields=messages=KEY: not in the data"):
        resolve_schema(SftSettings(fields=("messages=KEY",)), [{"lines": TURNS}], "data")


CHAT = ("user", "assistant")


@pytest.mark.parametrize(
    ("roles", "advised"),
    [
        ((*CHAT, "env"), "env=tool"),
        ((*CHAT, "context"), "context=ROLE"),
        ((*CHAT, "critic"), "critic=ROLE"),
        (("context", *CHAT), "context=ROLE"),
        ((*CHAT, "Tool-Result", "critic"), "Tool-Result=tool,critic=ROLE"),
        (("human", "gpt", "code_executor"), "code_executor=tool"),
        (("human", "tool_call", "sandbox"), "sandbox=tool"),
        (("human", "client", "tool_call"), "client=ROLE"),
        (("user", "agent", "critic"), "agent=assistant,critic=ROLE"),
        (("client", "agent", "env"), "client=user,agent=assistant,env=tool"),
        (("bot", "user"), "bot=assistant"),
        (("bot", "assistant"), "bot=user"),
        (("assistant", "visitor"), "visitor=user"),
    ],
)
@pytest.mark.parametrize("keys", [("role", "content"), ("from", "value")])
def test_no_second_assistant_is_advised_and_results_are_those_of_a_tool(roles, advised, keys):
    call = '{"name": "f", "arguments": {}}'
    turns = [dict(zip(keys, (r, call if r == "tool_call" else "x"), strict=True)) for r in roles]
    said = refusal({"messages": turns}, {"messages": turns})
    assert f"--role-names={advised} (" in said
    assert ("ROLE is yours to choose: tool, user, system or drop" in said) == ("ROLE" in advised)
    if "ROLE" not in advised:
        named = SftSettings(role_names=tuple(advised.split(",")))
        settled = resolve_schema(named, [{"messages": turns}])
        assert len(read_conversation({"messages": turns}, "messages", settled).messages) == len(
            roles
        )


@pytest.mark.parametrize("name", ["env", "critic", "context"])
def test_an_unknown_role_in_one_chat_among_known_ones_is_never_advised_as_the_assistant(name):
    role = "tool" if name == "env" else "ROLE"
    with pytest.raises(ChatError) as caught:
        read_conversation(
            {"messages": [USER, {"role": name, "content": "x"}]}, "messages", SETTINGS
        )
    assert caught.value.message.endswith(f"--role-names {name}={role}")
