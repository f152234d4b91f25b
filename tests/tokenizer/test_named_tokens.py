from __future__ import annotations

import json

import pytest

from tokmill.errors import TokenizerError
from tokmill.tokenizer.named_tokens import Companions, read_companions


def refusal(call):
    with pytest.raises(TokenizerError) as caught:
        call()
    return str(caught.value)


def write_config(folder, name="tokenizer_config.json", **values):
    (folder / name).write_text(json.dumps(values))


def test_eos_comes_from_tokenizer_config(tmp_path):
    write_config(tmp_path, eos_token="</s>")
    write_config(tmp_path, "special_tokens_map.json", eos_token="<|endoftext|>")
    read = read_companions(tmp_path)
    assert (read.eos, read.eos_source) == ("</s>", "tokenizer_config.json")


def test_eos_may_be_an_object_with_content(tmp_path):
    write_config(tmp_path, eos_token={"__type": "AddedToken", "content": "</s>"})
    assert read_companions(tmp_path).eos == "</s>"


def test_eos_comes_from_special_tokens_map_where_the_config_has_none(tmp_path):
    write_config(tmp_path, eos_token=None)
    write_config(tmp_path, "special_tokens_map.json", eos_token="</s>")
    read = read_companions(tmp_path)
    assert (read.eos, read.eos_source) == ("</s>", "special_tokens_map.json")


def test_without_companion_files_nothing_is_said(tmp_path):
    read = read_companions(tmp_path)
    assert read == Companions(None, "", {})
    assert read.chat_template is None


def test_a_chat_template_is_a_string_a_list_or_a_file(tmp_path):
    write_config(tmp_path, chat_template="one")
    assert read_companions(tmp_path).chat_template == "one"
    named = [{"name": "tool", "template": "two"}, {"name": "default", "template": "three"}]
    write_config(tmp_path, chat_template=named)
    assert read_companions(tmp_path).chat_templates == {"tool": "two", "default": "three"}
    assert read_companions(tmp_path).chat_template == "three"
    (tmp_path / "chat_template.jinja").write_text("four")
    assert read_companions(tmp_path).chat_template == "four"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "expected an object, found list"),
        ('{"chat_template": 3}', "expected a string or a list of name and template, found int"),
        ('{"chat_template": [1]}', "expected a string or a list of name and template, found list"),
    ],
)
def test_a_broken_companion_is_named(tmp_path, content, message):
    (tmp_path / "tokenizer_config.json").write_text(content)
    found = refusal(lambda: read_companions(tmp_path))
    assert found.startswith(str(tmp_path / "tokenizer_config.json"))
    assert message in found
