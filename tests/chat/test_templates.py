from __future__ import annotations

import dataclasses

import pytest

from tokmill.chat.conversation import Conversation
from tokmill.chat.jinja.training_templates import TRAINING
from tokmill.chat.segments import Segments
from tokmill.chat.templates import BUILT_IN, make_template, template_source
from tokmill.errors import UsageError
from tokmill.settings.sft import SftSettings

OWN = "{% for m in messages %}{{ m.content }}{% endfor %}"
NAMES = (
    "chatml", "llama3", "alpaca", "plain", "minimind", "torchtune", "nanochat", "baby-llama2"
)  # fmt: skip


@pytest.mark.parametrize(
    ("template", "preset_template", "expected"),
    [
        ("auto", "", OWN),
        ("auto", "nanochat", "nanochat"),
        ("tokenizer", "nanochat", OWN),
        ("chatml", "nanochat", "chatml"),
    ],
)
def test_a_named_template_wins_over_the_preset_s_and_that_over_the_tokenizer_s(
    template, preset_template, expected
):
    assert template_source(SftSettings(template=template), preset_template, OWN) == expected


@pytest.mark.parametrize("template", ["auto", "tokenizer"])
@pytest.mark.parametrize("own", [None, ""])
def test_a_tokenizer_without_a_template_is_told_what_to_do(template, own):
    with pytest.raises(UsageError) as caught:
        template_source(SftSettings(template=template), "", own)
    assert str(caught.value) == (
        "this tokenizer has no chat template: give --template, one of chatml, llama3, alpaca, "
        "plain, minimind, torchtune, nanochat, baby-llama2 or a Jinja file"
    )


def test_a_template_that_is_nowhere_is_refused(tmp_path):
    path = str(tmp_path / "none.jinja")
    with pytest.raises(UsageError) as caught:
        template_source(SftSettings(template=path), "", OWN)
    assert str(caught.value) == (
        f"{path}: no such template; built in are {', '.join((*NAMES, *TRAINING))}, or name "
        "a Jinja file"
    )


@pytest.mark.parametrize("content", [b"\xff", None])
def test_a_template_that_cannot_be_read_is_refused_with_its_reason(tmp_path, content):
    path = tmp_path / "odd.jinja"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(UsageError, match=r"odd\.jinja: the template cannot be read: "):
        template_source(SftSettings(template=str(path)), "", OWN)


@pytest.mark.parametrize("name", NAMES)
def test_every_built_in_template_has_its_name_and_writes(vocabulary, name):
    template = make_template(name, SftSettings(), vocabulary)
    assert template.name == name
    messages = [{"role": "user", "content": "U"}, {"role": "assistant", "content": "A"}]
    segments = Segments(vocabulary.control)
    segments.begin_sample()
    template.render(Conversation(messages, [None, None]), segments)
    assert [part for part in segments.columns().text.to_pylist() if part in "UA"] == ["U", "A"]
    assert tuple(BUILT_IN) == NAMES


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("chatml", "<|im_start|>, <|im_end|>"),
        ("minimind", "<|im_start|>, <|im_end|>"),
        ("torchtune", "<|im_start|>, <|im_end|>"),
        ("llama3", "<bos>, <|start_header_id|>, <|end_header_id|>, <|eot_id|>"),
        ("nanochat", "<|bos|>, <|user_start|>, <|user_end|>, <|assistant_start|>, "),
    ],
)
def test_a_tokenizer_without_the_control_tokens_is_refused(vocabulary, name, missing):
    bare = dataclasses.replace(vocabulary, control={"<eos>": 0})
    with pytest.raises(UsageError) as caught:
        make_template(name, SftSettings(), bare)
    # minimind and torchtune are kinds of chatml, and say their own name.
    assert str(caught.value).startswith(f"template {name} needs the control tokens {missing}")


def test_a_system_message_by_default_is_for_built_in_templates(vocabulary):
    with pytest.raises(UsageError) as caught:
        make_template(OWN, SftSettings(default_system="Be kind."), vocabulary)
    assert str(caught.value) == ("sft.default_system: only built-in templates take it")


@pytest.mark.parametrize(
    ("template", "where"),
    [("auto", "the tokenizer's chat template"), ("own.jinja", "own.jinja")],
)
def test_a_template_that_is_no_jinja_is_named(vocabulary, template, where):
    with pytest.raises(UsageError) as caught:
        make_template("{% for %}", SftSettings(template=template), vocabulary)
    assert str(caught.value).startswith(f"{where}")
    assert "\n" not in str(caught.value)
