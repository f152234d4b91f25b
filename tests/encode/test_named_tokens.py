from __future__ import annotations

import json

import pytest

from tokmill.encode.named_tokens import Companions, Token, find_eos, find_token, read_companions
from tokmill.errors import TokenizerError

IDS = {"7": 0, "a": 1, "<|endoftext|>": 2, "<|im_end|>": 3, "</s>": 4, "<|vision_end|>": 5}
OFFER = "candidates: id 2 <|endoftext|>, id 3 <|im_end|>, id 4 </s>"


def companions(eos=None, **templates):
    return Companions(eos, "tokenizer_config.json" if eos else "", templates)


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


def test_a_token_is_found_by_string_or_by_id():
    assert find_token("</s>", IDS, where="t", option="--eos-token") == Token(4, "</s>")
    assert find_token("4", IDS, where="t", option="--eos-token") == Token(4, "</s>")


def test_digits_are_an_id_even_where_a_token_is_written_so():
    message = refusal(lambda: find_token("7", IDS, where="t", option="--eos-token"))
    assert message == "t: --eos-token names id 7, which no token has"


def test_an_unknown_token_is_refused_with_candidates():
    message = refusal(lambda: find_token("<x>", IDS, where="t", option="--bos-token"))
    assert message == f"t: --bos-token names '<x>', which is not in the vocabulary; {OFFER}"


def test_eos_is_what_the_files_agree_on():
    assert find_eos(IDS, companions("</s>"), None, where="t") == Token(4, "</s>")
    assert find_eos(IDS, companions(), Token(4, "</s>"), where="t") == Token(4, "</s>")
    assert find_eos(IDS, companions("</s>"), Token(4, "</s>"), where="t") == Token(4, "</s>")


def test_a_missing_eos_lists_candidates():
    message = refusal(lambda: find_eos(IDS, companions(), None, where="t"))
    assert message == f"t: no file names an end-of-text token; choose with --eos-token; {OFFER}"


def test_a_missing_eos_without_candidates_says_so():
    message = refusal(lambda: find_eos({"a": 0}, companions(), None, where="t"))
    assert message.endswith("no token looks like one")


def test_an_eos_that_is_no_token_lists_candidates():
    message = refusal(lambda: find_eos(IDS, companions("<eos>"), None, where="t"))
    assert "tokenizer_config.json names eos '<eos>', which is not in the vocabulary" in message
    assert message.endswith(OFFER)


def test_two_files_that_name_two_eos_are_refused():
    message = refusal(lambda: find_eos(IDS, companions("a"), Token(4, "</s>"), where="t"))
    assert "the model's eos is id 4 </s>, tokenizer_config.json names id 1 a" in message


@pytest.mark.parametrize("template", ["{{ x }}<|im_end|>", "{{ x + eos_token }}"])
def test_an_eos_that_ends_turns_is_ambiguous(template):
    given = companions("<|im_end|>", default="", other=template)
    message = refusal(lambda: find_eos(IDS, given, None, where="t"))
    assert "eos is ambiguous" in message
    assert "--eos-token" in message
    assert message.endswith(OFFER)


def test_an_ambiguous_eos_of_any_name_is_among_the_candidates():
    message = refusal(lambda: find_eos(IDS, companions("a", default="a"), None, where="t"))
    assert "id 1 a, id 2 <|endoftext|>" in message


def test_an_eos_that_the_template_does_not_use_is_clear():
    given = companions("<|endoftext|>", default="{{ x }}<|im_end|>{{ my_eos_token_2 }}")
    assert find_eos(IDS, given, None, where="t") == Token(2, "<|endoftext|>")


@pytest.mark.parametrize(
    "content",
    [
        *("</s>", "<eos>", "[EOS]", "<eod>", "[SEP]", "<|endoftext|>", "<|end_of_text|>"),
        *("<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|return|>"),
        "<｜end▁of▁sentence｜>",
    ],
)
def test_names_of_an_end_are_recognised(content):
    message = refusal(lambda: find_eos({content: 9}, companions(), None, where="t"))
    assert message.endswith(f"candidates: id 9 {content}")


def test_for_chats_eos_may_be_what_ends_turns():
    companions = Companions("</s>", "tokenizer_config.json", {"default": "x</s>"})
    with pytest.raises(TokenizerError, match="eos is ambiguous"):
        find_eos({"</s>": 2}, companions, None, where="t")
    assert find_eos({"</s>": 2}, companions, None, where="t", of_turns=True) == Token(2, "</s>")
