"""The page for people with a script of their own: its commands give the ids of the scripts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Library

import tokmill
from tests.docs.pages import ROOT, blocks
from tests.docs.run_page import run_commands

PAGE = "docs/from-your-script.md"
EOS, BOS = 2, 1


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """The directory in which all blocks of the page ran."""
    place = tmp_path_factory.mktemp("page")
    (place / "data_samples").symlink_to(ROOT / "data_samples")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for block in blocks(PAGE):
            if block.file:
                Path(block.file).parent.mkdir(exist_ok=True)
                Path(block.file).write_text(block.text)
            elif block.language == "bash":
                assert "failed" not in run_commands(block.text)
    return place


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def baike(record):
    text = record["title"] + "：" + record["summary"]
    for section in record["sections"]:
        text += section["title"] + "：" + section["content"] + "。"
    return text


def texts_of(name, place):
    """Return the texts that the script of a dataset encodes."""
    if name == "baike":
        return map(baike, lines(place / "baike.jsonl"))
    if name == "wiki":
        return (record["completion"] for record in json.loads((place / "wiki.json").read_text()))
    if name == "wudao-tokens":
        records = json.loads((place / "wudao/part-1.json").read_text())
        return (record["title"] + record["content"] for record in records)
    return (record["text"] for record in lines(place / "pretrain.jsonl"))


@pytest.mark.parametrize("name", ["baike", "wiki", "wudao-tokens", "zero", "mini", "steel"])
def test_the_ids_are_those_of_the_script(made, name):
    library = Library.from_file(str(ROOT / "data_samples/tokenizer/tokenizer.json"))
    expected = []
    for text in texts_of(name, made):
        ids = [*library.encode(text, add_special_tokens=False).ids, EOS]
        if name in ("zero", "mini", "steel") or len(ids) > 5:
            expected.append([BOS, *ids] if name == "mini" else ids)
    assert expected
    assert [ids.tolist() for ids in tokmill.open(made / name)] == expected


def test_one_file_of_all_holds_every_id_in_order_and_can_be_written_to(made):
    expected = [
        ids for name in ("baike", "wiki", "wudao-tokens") for ids in tokmill.open(made / name)
    ]
    path = made / "all-bin/train.bin"
    found = np.memmap(path, np.uint16, "r+")
    assert found.tolist() == np.concatenate(expected).tolist()


def test_a_chat_is_question_bos_answer_eos_of_which_the_answer_and_eos_are_trained(made):
    dataset = tokmill.open(made / "chats")
    ids, mask = dataset[0].tolist(), dataset.mask(0).tolist()
    at = ids.index(BOS)
    assert ids[-1] == EOS
    assert mask == [0] * (at + 1) + [1] * (len(ids) - at - 1)
