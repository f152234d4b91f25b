"""Files that are no tokenizer are named by what they are, with what to do; pickles are not read."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Library
from tokenizers.models import BPE

from tokmill.errors import TokenizerError, UsageError
from tokmill.settings.schema import TokenizerSettings
from tokmill.settings.sft import SftSettings
from tokmill.tokenizer.tokenizer import load_tokenizer

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 7\n"


def refusal(path, **settings) -> str:
    with pytest.raises(TokenizerError) as caught:
        load_tokenizer(TokenizerSettings(path=str(path), **settings))
    message = str(caught.value)
    assert "\n" not in message
    return message


POINTERS = [
    "tokenizer.json", "tokenizer.model", "spm.model", "qwen.tiktoken", "vocab.txt",
    "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
]  # fmt: skip


@pytest.mark.parametrize("name", POINTERS)
def test_a_pointer_of_git_lfs_is_named_with_its_command(tmp_path, tokenizer_dir, name):
    if name in ("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"):
        shutil.copy(tokenizer_dir / "tokenizer.json", tmp_path)
    if name == "vocab.txt":
        config = {"tokenizer_class": "BertTokenizer"}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / name).write_bytes(POINTER)
    expected = f"{tmp_path / name}: a pointer of Git LFS, not the file itself: get the file with "
    assert refusal(tmp_path).startswith(f"{expected}git lfs pull")


def test_a_pointer_in_place_of_a_template_is_named(tmp_path):
    from tokmill.chat.template_source import template_source

    (tmp_path / "t.jinja").write_bytes(POINTER)
    settings = SftSettings(template=str(tmp_path / "t.jinja"))
    with pytest.raises(UsageError, match="git lfs pull"):
        template_source(settings, "chatml", None)


class Runs:
    """Leaves a file behind if it is unpickled."""

    def __reduce__(self):
        return (Path("unpickled").touch, ())


TEKKEN = {"config": {"pattern": "x", "default_vocab_size": 7}, "vocab": []}
OTHERS = {
    "tokenizer.pkl": (pickle.dumps(Runs()), "a pickle, which can run code and is not read; with"),
    "meta.pkl": (pickle.dumps({"stoi": {}}), "of nanoGPT's table of characters"),
    "old.pkl": (pickle.dumps(Runs(), protocol=0), "a pickle"),
    "encoding.bin": (pickle.dumps(Runs()), "a pickle"),
    "tokenizer.pt": (b"PK\3\4rest", "a zip archive"),
    "tekken.json": (json.dumps(TEKKEN).encode(), "a Tekken vocabulary of mistral-common"),
    "renamed.json": (json.dumps(TEKKEN).encode(), "a Tekken vocabulary of mistral-common"),
}


@pytest.mark.parametrize(("name", "case"), OTHERS.items(), ids=OTHERS)
def test_another_kind_of_file_is_named_by_its_content(tmp_path, monkeypatch, name, case):
    monkeypatch.chdir(tmp_path)
    content, told = case
    (tmp_path / name).write_bytes(content)
    assert told in refusal(tmp_path / name)
    if name.endswith((".pkl", "tekken.json")):
        assert told in refusal(tmp_path)
    assert not Path("unpickled").exists()


def test_a_table_of_characters_becomes_a_tokenizer_as_the_page_says(tmp_path):
    stoi = {character: id_ for id_, character in enumerate("\n ehlo你")}
    Library(BPE({**stoi, "<eos>": len(stoi)}, [])).save(str(tmp_path / "tokenizer.json"))
    found = load_tokenizer(TokenizerSettings(path=str(tmp_path), eos_token="<eos>"))
    assert found.library().encode("hello 你\n").ids == [stoi[c] for c in "hello 你\n"]


TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A"}}],
}
PROCESSORS = {
    "a template": (TEMPLATE, True),
    "in a sequence": ({"type": "Sequence", "processors": [{"type": "ByteLevel"}, TEMPLATE]}, True),
    "Roberta's": ({"type": "RobertaProcessing", "cls": ["<bos>", 1], "sep": ["<eos>", 0]}, True),
    "none": (None, False),
    "text alone": ({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}]}, False),
    "of no form": ({"type": "Sequence", "processors": 7}, False),
}


@pytest.mark.parametrize(("processor", "adds"), PROCESSORS.values(), ids=PROCESSORS)
def test_a_bos_that_the_tokenizer_adds_and_the_run_does_not_is_noted(
    tmp_path, tokenizer_dir, processor, adds
):
    content = json.loads((tokenizer_dir / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer.json").write_text(json.dumps({**content, "post_processor": processor}))
    settings = TokenizerSettings(path=str(tmp_path), eos_token="<eos>")
    notes = load_tokenizer(settings).notes
    told = f"{tmp_path}: its post_processor puts <bos> before a text, and this run does not; "
    told += "if the model expects it: '--bos-token=<bos>'"
    assert notes == ((told,) if adds else ())
    settings = TokenizerSettings(path=str(tmp_path), eos_token="<eos>", bos_token="<bos>")
    assert load_tokenizer(settings).notes == ()
    assert load_tokenizer(settings, for_chat=True).notes == ()


def test_a_wrong_bos_lists_tokens_that_begin_texts(tokenizer_dir):
    message = refusal(tokenizer_dir, bos_token="<s>")
    assert message.endswith("--bos-token names '<s>', which is not in the vocabulary; "
                            "candidates: id 1 <bos>")  # fmt: skip
