from __future__ import annotations

import dataclasses

import pytest

from tokmill.chat.own_templates import NAMES, own_source
from tokmill.chat.template_source import make_template, template_source
from tokmill.errors import UsageError
from tokmill.settings.sft import SftSettings

OWN = "{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "preset_template", "expected"),
    [
        ("auto", "", OWN),
        ("auto", "nanochat", own_source("nanochat")),
        ("tokenizer", "nanochat", OWN),
        ("chatml", "nanochat", own_source("chatml")),
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
        f"{path}: no such template; built in are {', '.join(NAMES)}, or name a Jinja file"
    )


@pytest.mark.parametrize("content", [b"\xff", None])
def test_a_template_that_cannot_be_read_is_refused_with_its_reason(tmp_path, content):
    path = tmp_path / "odd.jinja"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(UsageError, match=r"odd\.jinja: the template cannot be read: "):
        template_source(SftSettings(template=str(path)), "", OWN)


@pytest.mark.parametrize("template", ["auto", "a.jinja"])
def test_what_is_too_long_or_no_utf_8_is_refused_wherever_it_comes_from(
    tmp_path, monkeypatch, template
):
    monkeypatch.chdir(tmp_path)
    where = "the tokenizer's chat template" if template == "auto" else template
    (tmp_path / "a.jinja").write_text("x" * (1 << 20) + "y" * 9)
    with pytest.raises(UsageError) as caught:
        template_source(SftSettings(template=template), "", "x" * ((1 << 20) + 1))
    assert str(caught.value) == f"{where}: longer than 1,048,576 characters: no chat template"
    with pytest.raises(
        UsageError, match=r"^the tok.*: expected text that can be UTF-8, found '.ud"
    ):
        template_source(SftSettings(), "", "x\ud800")


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
        make_template(own_source(name), SftSettings(), bare)
    # minimind and torchtune are kinds of chatml, and say their own name.
    assert str(caught.value).startswith(f"template {name} needs the control tokens {missing}")


def test_a_template_that_refuses_a_default_system_message_is_told_at_once(vocabulary):
    kind = SftSettings(default_system="Be kind.")
    refuses = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + OWN
    )
    for source, said in (
        (refuses, "the tokenizer's chat template refuses it: the chat template raises: no system"),
        (own_source("baby-llama2"), "baby-llama2 refuses it: template baby-llama2 has one prompt"),
    ):
        with pytest.raises(UsageError) as caught:
            make_template(source, kind, vocabulary)
        assert str(caught.value).startswith(f"sft.default_system: {said}")
    asks = "{{ raise_exception('tools') if not tools }}" + OWN
    make_template(asks, kind, vocabulary)  # refuses the chat that tries it, in any case


@pytest.mark.parametrize(
    ("template", "where"), [("auto", "the tokenizer's chat template"), ("own.jinja", "own.jinja")]
)
def test_a_template_that_is_no_jinja_is_named(vocabulary, template, where):
    with pytest.raises(UsageError) as caught:
        make_template("{% for %}", SftSettings(template=template), vocabulary)
    assert str(caught.value).startswith(f"{where}")
    assert "\n" not in str(caught.value)
