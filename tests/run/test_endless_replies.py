"""Chats that would teach a model the wrong thing stop a run: without ends, or with calls lost."""

from __future__ import annotations

import pytest

import tokmill
from tokmill.chat.noticed import LOST_CALLS
from tokmill.errors import RecordError

pytestmark = pytest.mark.usefixtures("rendered_here")

CHATGLM = """{%- for m in messages %}<|im_start|>{{ m.role }}
 {{ m.content }}{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
 {% endif %}"""


@pytest.fixture
def run(tokenizer_dir, write_rows, tmp_path):
    """Return a function that makes a dataset of chats of two replies."""

    def make(n_chats=20, n_replies=2, template=CHATGLM, **settings):
        path = tmp_path / "own.jinja"
        path.write_text(template)
        turns = [("user", "Ask."), ("assistant", "Say.")] * n_replies
        chat = {"messages": [{"role": role, "content": text} for role, text in turns]}
        return tokmill.sft(
            write_rows(tmp_path / "in.jsonl", [chat] * n_chats), tokenizer=tokenizer_dir,
            template=str(path), output=tmp_path / "out", progress=False, **settings,
        )  # fmt: skip

    return make


@pytest.mark.parametrize("n_chats", [1, 20, 2000])
def test_replies_without_a_trained_end_are_an_error_that_names_the_options(run, n_chats):
    words = r"trained turns? have no trained end.*train=\[\"\+eos\"\].*train=\[\"-eot\"\]"
    with pytest.raises(RecordError, match=words):
        run(n_chats, n_replies=1)


@pytest.mark.parametrize("settings", [{"train": ["-eot"]}, {"max_reject_fraction": 1.0}])
def test_they_are_written_if_that_is_asked_for(run, settings):
    assert len(run(**settings)) == 20


@pytest.mark.parametrize("train", [["+untrained-eos", "-eot"], ["+eos"]])
def test_eos_is_appended_to_every_reply_that_has_no_end(run, train):
    dataset = run(train=train)
    ids, mask = dataset[0], dataset.mask(0)
    assert dataset.text(0).count("Say.<eos>") == 2
    eos = dataset.manifest["tokenizer"]["eos"]["id"]
    assert mask[ids == eos].tolist() == [int("+eos" in train)] * 2


def test_eos_stands_before_what_the_template_writes_behind_a_reply(run):
    spaced = CHATGLM.replace("{{ m.content }}", "{{ m.content }}\n\n")
    dataset = run(template=spaced, train=["+eos"])
    assert dataset.text(0).count("Say.<eos>\n\n") + dataset.text(0).count("Say.\n\n<eos>") == 2


def test_a_template_that_ends_its_turns_gets_eos_behind_the_sample_alone(run):
    ended = CHATGLM.replace("{{ m.content }}", "{{ m.content }}<bos>")
    text = run(template=ended, train=["+eos"]).text(0)
    assert text.count("<eos>") == 1
    assert text.endswith("Say.<bos><eos>")


CALL = {"type": "function", "function": {"name": "look", "arguments": {"x": 1}}}
TEXTS = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<bos>"
    "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
)


def test_a_template_that_leaves_out_tool_calls_stops_the_run_and_names_those_that_write_them(
    tokenizer_dir, write_rows, tmp_path
):
    reply = {"role": "assistant", "content": "Let me look.", "tool_calls": [CALL]}
    chat = {"messages": [{"role": "user", "content": "Ask."}, reply]}
    (tmp_path / "own.jinja").write_text(TEXTS)

    def make(**settings):
        return tokmill.sft(
            write_rows(tmp_path / "in.jsonl", [chat] * 5), tokenizer=tokenizer_dir,
            template=str(tmp_path / "own.jinja"), output=tmp_path / "out", progress=False,
            **settings,
        )  # fmt: skip

    with pytest.raises(RecordError, match=r"^5 replies whose tool calls the template leaves out: "):
        make()
    assert (
        make(max_reject_fraction=1.0, overwrite=True).manifest["totals"]["counters"][LOST_CALLS]
        == 5
    )
    counters = make(ignore_keys=("tool_calls",), overwrite=True).manifest["totals"]["counters"]
    assert LOST_CALLS not in counters
