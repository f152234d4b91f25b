from __future__ import annotations

import base64
import dataclasses
import json
import pickle

import pytest
from tokenizers import Tokenizer as Library

from tests.fixtures.tokenizers import train_sentencepiece
from tokmill.errors import TokenizerError, UsageError
from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer.tokenizer import AddedToken, Token, Tokenizer, load_tokenizer


def added(token_id, content, *, special=True):
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token_id, "content": content, "special": special, **flags}


def content(vocab=None, added_tokens=(), **changes):
    vocab = vocab or {"a": 0, "b": 1, "ab": 2}
    values = {"type": "BPE", "vocab": vocab, "merges": [["a", "b"]]}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": list(added_tokens),
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        "model": values | changes.pop("model", {}),
    } | changes


def write(folder, value, config=None):
    (folder / "tokenizer.json").write_text(json.dumps(value))
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return str(folder)


def load(path, **settings):
    return load_tokenizer(TokenizerSettings(path=str(path), **settings))


def refusal(path, **settings):
    with pytest.raises(TokenizerError) as caught:
        load(path, **settings)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_tokenizer_json_is_described(tmp_path):
    tokens = [added(3, "<eos>"), added(4, "<tool>", special=False), added(5, "<bos>")]
    path = write(tmp_path, content(added_tokens=tokens), {"eos_token": "<eos>"})
    given = load(path, bos_token="<bos>")
    assert given == Tokenizer(
        name=path,
        kind="json",
        data=b"",
        json=given.json,
        identity=given.identity,
        vocab_size=6,
        eos=Token(3, "<eos>"),
        bos=Token(5, "<bos>"),
        added=(
            AddedToken(3, "<eos>", True),
            AddedToken(4, "<tool>", False),
            AddedToken(5, "<bos>", True),
        ),
        chat_template=None,
        max_emittable_id=5,
        named=(("eos_token", "<eos>"),),
    )
    assert pickle.loads(pickle.dumps(given)) == given


def test_parts_that_add_tokens_truncate_or_pad_are_removed(tmp_path):
    template = {
        "type": "TemplateProcessing",
        "single": [
            {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "<eos>", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<eos>": {"id": "<eos>", "ids": [3], "tokens": ["<eos>"]}},
    }
    truncation = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    given = content(
        added_tokens=[added(3, "<eos>")],
        post_processor=template,
        truncation=truncation,
        decoder={"type": "Fuse"},
    )
    loaded = load(write(tmp_path, given), eos_token="<eos>")
    assert json.loads(loaded.json) == given | {"post_processor": None, "truncation": None}
    assert Library.from_str(loaded.json).encode("ababab").ids == [2, 2, 2]


def test_the_library_neither_truncates_nor_pads_and_each_call_returns_another(tmp_path):
    truncation = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    padding = {
        "strategy": {"Fixed": 9},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "a",
    }
    given = content(added_tokens=[added(3, "<eos>")], truncation=truncation, padding=padding)
    loaded = load(write(tmp_path, given), eos_token="<eos>")
    first, second = loaded.library(), loaded.library()
    first.encode_special_tokens = True
    assert second.encode_special_tokens is False
    texts = ["ababab", "b"]
    for library in (first, second):
        assert [found.ids for found in library.encode_batch_fast(texts)] == [[2, 2, 2], [1]]


def test_a_copy_with_another_json_loads_its_own_library(tmp_path):
    path = write(tmp_path, content(added_tokens=[added(3, "<eos>")]))
    loaded = load(path, eos_token="<eos>")
    other = json.loads(loaded.json)
    other["added_tokens"] = []
    copy = dataclasses.replace(loaded, json=json.dumps(other))
    assert copy.library().get_added_tokens_decoder() == {}
    checked = loaded.library()
    assert loaded.library() is not checked
    assert len(checked.get_added_tokens_decoder()) == 1


def test_a_file_without_the_type_of_its_model_loads(tmp_path):
    model = {"unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0], ["</s>", 0.0]]}
    path = write(tmp_path, content([]) | {"model": model}, {"eos_token": "</s>"})
    assert load(path).eos == Token(2, "</s>")
    assert load(path).vocab_size == 3


def test_an_eos_option_wins_over_the_files(tmp_path):
    path = write(
        tmp_path,
        content(added_tokens=[added(3, "<eos>"), added(4, "<|im_end|>")]),
        {"eos_token": "<|im_end|>", "chat_template": "<|im_end|>"},
    )
    assert load(path, eos_token="<eos>").eos == Token(3, "<eos>")
    assert load(path, eos_token="4").eos == Token(4, "<|im_end|>")
    assert load(path, eos_token="<eos>").chat_template == "<|im_end|>"
    assert refusal(path).endswith("candidates: id 3 <eos>, id 4 <|im_end|>")


def test_bos_is_used_only_if_an_option_names_it(tmp_path):
    path = write(
        tmp_path,
        content(added_tokens=[added(3, "<eos>")]),
        {"eos_token": "<eos>", "bos_token": "a"},
    )
    assert load(path).bos is None
    assert load(path, bos_token="a").bos == Token(0, "a")
    assert "--bos-token names '<no>'" in refusal(path, bos_token="<no>")


def test_the_largest_emittable_id_counts_only_ids_that_a_run_writes(tmp_path):
    tokens = [
        added(3, "<eos>"),
        added(4, "<tool>", special=False),
        added(5, "<pad>"),
        added(6, "<bos>"),
    ]
    path = write(tmp_path, content(added_tokens=tokens), {"eos_token": "<eos>"})
    assert load(path).max_emittable_id == 4
    assert load(path, bos_token="<bos>").max_emittable_id == 6
    assert load(path, eos_token="<pad>").max_emittable_id == 5
    assert load(path, control_tokens_in_text="reject").max_emittable_id == 4
    assert load(path, control_tokens_in_text="parse").max_emittable_id == 6


def test_text_never_produces_a_special_token_of_the_vocabulary(tmp_path):
    vocab = {"a": 0, "b": 1, "ab": 2, "<pad>": 9}
    tokens = [added(9, "<pad>")]
    path = write(tmp_path, content(vocab, tokens))
    assert load(path, eos_token="a").max_emittable_id == 2
    assert load(path, eos_token="a").vocab_size == 10
    assert load(path, eos_token="a", control_tokens_in_text="parse").max_emittable_id == 9


def test_text_can_produce_the_unknown_token_though_it_is_special(tmp_path):
    vocab = {"a": 0, "b": 1, "ab": 2, "<unk>": 9}
    given = content(vocab, [added(9, "<unk>")], model={"unk_token": "<unk>"})
    assert load(write(tmp_path, given), eos_token="a").max_emittable_id == 9


def test_an_eos_above_uint16_is_the_largest_emittable_id(tmp_path):
    vocab = {"a": 0, "b": 1, "ab": 2, "<eos>": 70000, "<pad>": 70001}
    given = content(vocab, [added(70000, "<eos>"), added(70001, "<pad>")])
    assert load(write(tmp_path, given), eos_token="<eos>").max_emittable_id == 70000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "not a tokenizer.json: it has no object 'model'"),
        ('{"eos_token": "</s>"}', "not a tokenizer.json: it has no object 'model'"),
        (json.dumps(content(model={"dropout": 0.1})), "model.dropout is 0.1"),
        (json.dumps(content(model={"merges": ["a b c"]})), "the tokenizers library refuses it:"),
        (json.dumps(content(model={"type": "New"})), "the tokenizers library refuses it:"),
    ],
    ids=["half", "list", "config", "dropout", "merges", "type"],
)
def test_a_file_that_does_not_load_is_named_with_the_reason(tmp_path, text, message):
    (tmp_path / "tokenizer.json").write_text(text)
    found = refusal(tmp_path, eos_token="a")
    assert found.startswith(f"{tmp_path / 'tokenizer.json'}: {message}")


def test_a_native_panic_is_an_error_like_any_other(tmp_path, capfd):
    broken = {"type": "Precompiled", "precompiled_charsmap": ""}
    path = write(tmp_path, content(normalizer=broken))
    assert "the tokenizers library refuses it: Precompiled" in refusal(path, eos_token="a")
    capfd.readouterr()


def test_a_missing_path_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no such tokenizer file"):
        load(tmp_path / "gone")


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    options = {"byte_fallback": True, "pad_id": 3, "normalization_rule_name": "identity"}
    texts = ["the cat sat on the mat", "the dog"]
    return train_sentencepiece(tmp_path_factory.mktemp("sp"), texts, vocab_size=300, **options)


def test_a_sentencepiece_model_is_described(model_file):
    given = load(model_file)
    assert given.kind == "sentencepiece"
    assert given.data == model_file.read_bytes()
    assert (given.eos, given.bos) == (Token(2, "</s>"), None)
    assert given.special_ids == (0, 1, 2, 3)
    assert given.vocab_size == given.max_emittable_id + 1
    assert Library.from_str(given.json).get_vocab_size() == given.vocab_size
    assert load(model_file.parent) == load(str(model_file.parent))


def test_a_sentencepiece_model_whose_config_names_another_eos_is_refused(model_file, tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(model_file.read_bytes())
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<pad>"}')
    assert "the model's eos is id 2 </s>" in refusal(tmp_path)
    assert load(tmp_path, eos_token="<pad>").eos == Token(3, "<pad>")


@pytest.mark.parametrize("data", [b"", b"nonsense", b"\x00" * 100])
def test_a_broken_model_is_named(tmp_path, data):
    (tmp_path / "x.model").write_bytes(data)
    assert refusal(tmp_path) == f"{tmp_path / 'x.model'}: not a SentencePiece model"


def rank_lines():
    tokens = [bytes([byte]) for byte in range(256)] + [b"he"]
    return b"".join(base64.b64encode(token) + b" %d\n" % i for i, token in enumerate(tokens))


@pytest.mark.parametrize("name", ["x.tiktoken", "tokenizer.model"])
def test_a_rank_file_is_described_by_its_content_and_pattern(tmp_path, name):
    (tmp_path / name).write_bytes(rank_lines())
    given = load(tmp_path, pattern="gpt2", eos_token="<|endoftext|>")
    assert (given.kind, given.data) == ("json", b"")
    assert (given.vocab_size, given.eos) == (258, Token(257, "<|endoftext|>"))
    other = load(tmp_path, pattern="qwen2", eos_token="<|endoftext|>")
    assert other.identity != given.identity
    assert (other.vocab_size, other.max_emittable_id) == (260, 257)


def test_a_rank_file_without_a_pattern_is_refused(tmp_path):
    (tmp_path / "x.tiktoken").write_bytes(rank_lines())
    assert "set --pattern to its own regular expression, or, only if" in refusal(tmp_path)
    (tmp_path / "tokenization_own.py").write_text("raise SystemExit")
    assert "the regular expression in tokenization_own.py" in refusal(tmp_path)


def test_a_sentencepiece_model_is_recognized_by_its_bytes(model_file, tmp_path):
    renamed = tmp_path / "tokenizer.json"
    renamed.write_bytes(model_file.read_bytes())
    assert load(renamed).kind == "sentencepiece"
