from __future__ import annotations

import pytest

from tokmill.errors import TokenizerError
from tokmill.tokenizer.end_of_text import find_eos, find_token
from tokmill.tokenizer.files import Companions, Token

IDS = {"7": 0, "a": 1, "<|endoftext|>": 2, "<|im_end|>": 3, "</s>": 4, "<|vision_end|>": 5}
OFFER = "candidates: id 2 <|endoftext|>, id 3 <|im_end|>, id 4 </s>"


def companions(eos=None, **templates):
    return Companions({"eos_token": eos} if eos else {}, "tokenizer_config.json", templates)


def refusal(call):
    with pytest.raises(TokenizerError) as caught:
        call()
    return str(caught.value)


def test_a_token_is_found_by_string_or_by_id():
    assert find_token("</s>", IDS, where="t", option="--eos-token") == Token(4, "</s>")
    assert find_token("4", IDS, where="t", option="--eos-token") == Token(4, "</s>")


def test_digits_are_an_id_even_if_a_token_has_that_string():
    message = refusal(lambda: find_token("7", IDS, where="t", option="--eos-token"))
    assert message == "t: --eos-token names id 7, which no token has"


def test_an_unknown_token_is_refused_with_candidates():
    message = refusal(lambda: find_token("<x>", IDS, where="t", option="--eos-token"))
    assert message == f"t: --eos-token names '<x>', which is not in the vocabulary; {OFFER}"


def test_eos_is_what_the_files_agree_on():
    eos = (Token(4, "</s>"), "")
    assert find_eos(IDS, companions("</s>"), None, where="t") == eos
    assert find_eos(IDS, companions(), Token(4, "</s>"), where="t") == eos
    assert find_eos(IDS, companions("</s>"), Token(4, "</s>"), where="t") == eos


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
    assert find_eos(IDS, given, None, where="t") == (Token(2, "<|endoftext|>"), "")


@pytest.mark.parametrize(
    "content",
    [
        *("</s>", "<eos>", "[EOS]", "<EOS_TOKEN>", "<eod>", "[SEP]", "<|endoftext|>"),
        *("<|end_of_text|>", "<｜end▁of▁sentence｜>"),
    ],
)
def test_the_only_candidate_is_taken_with_a_note_if_no_file_names_eos(content):
    found = find_eos({"a": 1, content: 9}, companions(), None, where="t")
    assert found[0] == Token(9, content)
    assert found[1] == (
        f"t: no file names an end-of-text token; taken: id 9 {content}, the only candidate "
        "(--eos-token: another)"
    )


@pytest.mark.parametrize(
    "content",
    ["<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|return|>", "<|END_OF_TURN_TOKEN|>"],
)
def test_a_token_that_ends_turns_by_its_name_is_never_taken_as_eos(content):
    message = refusal(lambda: find_eos({content: 9}, companions(), None, where="t"))
    assert message.endswith(f"choose with --eos-token; candidates: id 9 {content}")
    ids = {content: 9, "<|endoftext|>": 8}
    message = refusal(lambda: find_eos(ids, companions(content), None, where="t"))
    assert f"by its name, the configured '{content}' ends the turns of a chat" in message
    assert "choose --eos-token='<|endoftext|>'" in message


def test_an_ordinary_token_is_no_candidate_if_a_control_token_is():
    found = find_eos(IDS, companions(), None, where="t", special=(2,))
    assert found[0] == Token(2, "<|endoftext|>")


@pytest.mark.parametrize(
    ("ids", "family", "eos"),
    [
        ({"<|endoftext|>": 151643, "<|im_end|>": 151645, "</s>": 9}, "Qwen", "<|endoftext|>"),
        ({"<|endoftext|>": 248044, "<|im_end|>": 248046}, "Qwen 3.5", "<|endoftext|>"),
        (
            {"<|end_of_text|>": 128001, "<|eom_id|>": 128008, "<|eot_id|>": 128009},
            "Llama 3",
            "<|end_of_text|>",
        ),
        ({"<eos>": 1, "<end_of_turn>": 106}, "Gemma 3", "<eos>"),
        ({"<｜end▁of▁sentence｜>": 1, "<|EOT|>": 7}, "DeepSeek", "<｜end▁of▁sentence｜>"),
        (
            {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2}
            | {f"{i}": i for i in range(3, 6400)},
            "minimind",
            "<|im_end|>",
        ),
    ],
)
def test_the_eos_of_a_known_family_is_taken_with_a_note_if_the_files_do_not_settle_it(
    ids, family, eos
):
    token = Token(ids[eos], eos)
    taken = f"taken: id {token.id} {eos}, with which {family} ends documents of pretraining "
    taken += "(--eos-token: another)"
    note = f"t: no file names an end-of-text token; {taken}"
    assert find_eos(ids, companions(), None, where="t") == (token, note)
    assert find_eos(ids, companions(), None, where="t", of_turns=True) == (token, note)
    turn = "<|im_end|>" if "<|im_end|>" in ids else next(text for text in ids if text != eos)
    given = companions(turn, default=turn)
    role = f"t: the chat template uses '{turn}' itself, as an end of turn"
    assert find_eos(ids, given, None, where="t") == (token, f"{role}; {taken}")
    kept = find_eos(ids, given, None, where="t", of_turns=True)
    assert kept == (Token(ids[turn], turn), "")


def test_of_several_candidates_in_no_known_family_one_is_advised_by_its_name():
    ids = {"<|eod|>": 4, "<|im_end|>": 5}
    advice = (
        "by the names, documents end with <|eod|>, and turns of chats with <|im_end|>: choose "
        "--eos-token='<|eod|>'"
    )
    message = refusal(lambda: find_eos(ids, companions(), None, where="t"))
    assert message.startswith(f"t: no file names an end-of-text token; {advice}; candidates: ")
    given = companions("<|im_end|>", default="<|im_end|>")
    assert advice in refusal(lambda: find_eos(ids, given, None, where="t"))


def test_a_configured_eos_that_is_no_token_is_an_error_in_a_known_family_too():
    ids = {"<|endoftext|>": 151643, "<|im_end|>": 151645}
    message = refusal(lambda: find_eos(ids, companions("<eos>"), None, where="t"))
    assert "which is not in the vocabulary; Qwen ends documents of pretraining with" in message
    assert "choose --eos-token='<|endoftext|>'" in message


def test_the_only_candidate_may_end_turns_too_with_a_note():
    given = companions("</s>", default="x</s>")
    found = find_eos({"</s>": 2}, given, None, where="t")
    assert found == (Token(2, "</s>"), "t: eos is id 2 </s>; it ends the turns of chats too")


def test_for_chats_eos_may_end_turns():
    given = companions("</s>", default="x</s>")
    with pytest.raises(TokenizerError, match="eos is ambiguous"):
        find_eos(IDS, given, None, where="t")
    assert find_eos(IDS, given, None, where="t", of_turns=True) == (Token(4, "</s>"), "")
