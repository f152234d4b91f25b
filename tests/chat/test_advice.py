from __future__ import annotations

import tomllib

import pytest

from tokmill.chat.detect import settle_records
from tokmill.errors import UsageError
from tokmill.settings.load import build_config
from tokmill.settings.schema import SftSettings

SETTINGS = SftSettings()
USER, REPLY = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
TURNS = [{"speaker": "client", "utterance": "q"}, {"speaker": "agent", "utterance": "a"}]


def refusal(*records):
    with pytest.raises(UsageError) as caught:
        settle_records(SETTINGS, records, "data.jsonl")
    return str(caught.value)


def test_turns_of_unknown_names_are_named_with_what_to_copy():
    said = refusal({"id": 1, "dialogue": TURNS})
    assert "found keys id, dialogue[]: speaker, utterance; known:" in said
    assert said.endswith(
        "rename the fields, or name them: --fields "
        "messages=dialogue,role=speaker,content=utterance --role-names client=user,agent=assistant "
        '(under [sft]: fields = {messages = "dialogue", role = "speaker", content = "utterance"} '
        'and role_names = {client = "user", agent = "assistant"})'
    )


@pytest.mark.parametrize(
    ("record", "options"),
    [
        ({"Question": "q", "Complex_CoT": "c", "Response": "a"},
         "--fields prompt=Question,completion=Response ("),
        ({"id": "x", "Problem text": "q", "Solution": "a"},
         "--fields 'prompt=Problem text,completion=Solution' ("),
        ({"a": "x", "b": "y"}, "--fields prompt=a,completion=b ("),
        ({"system": "s", "human": "q", "bot": "a"}, "--fields prompt=human,completion=bot ("),
        ({"problem": "q", "question_type": "x", "solution": "a"},
         "--fields prompt=problem,completion=solution ("),
    ],
)  # fmt: skip
def test_flat_records_of_unknown_names_are_too(record, options):
    assert f"or name them: {options}" in refusal(record)


@pytest.mark.parametrize("record", [{"id": 1}, {"a": "x"}, {}])
def test_there_is_no_advice_where_nothing_is_near(record):
    assert refusal(record).endswith("text: text: rename the fields")


def test_the_advice_can_be_copied_into_a_file():
    said = refusal({"dialogue": TURNS})
    lines = said.partition("under [sft]: ")[2].removesuffix(")").replace(" and ", "\n")
    config = build_config(tomllib.loads(f"[sft]\n{lines}"), where="file")
    assert config.sft is not None
    settled = settle_records(config.sft, [{"dialogue": TURNS}])
    assert (settled.schema, settled.role_names) == ("messages", ("agent=assistant", "client=user"))


def test_a_name_that_no_record_has_is_refused():
    with pytest.raises(UsageError, match=r"^--fields messages=dialouge: not in"):
        settle_records(SftSettings(fields=("messages=dialouge",)), [{"dialogue": []}], "data.jsonl")


def test_names_that_are_known_need_no_advice():
    said = refusal({"chat": [USER, REPLY], "dialog": [USER, REPLY]})
    assert said.endswith(
        'name them: --fields messages=chat (under [sft]: fields = {messages = "chat"})'
    )
