"""A tokenizer object of `tokenizers` or `transformers` in place of a path."""

from __future__ import annotations

import logging
import pickle

import pytest
from tokenizers import Tokenizer as Library

import tokmill
from tokmill.errors import UsageError

ROWS = [{"text": "hello there"}, {"text": "猫 <|im_start|>"}]
SETTINGS = {"engine": "reference", "workers": 1}


def of_transformers(directory):
    transformers = pytest.importorskip("transformers")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(directory / "tokenizer.json"), eos_token="<eos>"
    )


OBJECTS = {
    "tokenizers": lambda directory: Library.from_file(str(directory / "tokenizer.json")),
    "transformers": of_transformers,
}


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_tokenizer_object_is_the_tokenizer_of_its_file(tmp_path, tokenizer_dir, temporary, kind):
    def pretrain(tokenizer, output):
        return tokmill.pretrain(
            ROWS, tokenizer=tokenizer, output=tmp_path / output, eos_token="<eos>", **SETTINGS
        )

    tokenizer = OBJECTS[kind](tokenizer_dir)
    want, dataset = pretrain(tokenizer_dir, "want"), pretrain(tokenizer, "out")
    assert [dataset[i].tolist() for i in range(2)] == [want[i].tolist() for i in range(2)]
    named = dataset.manifest["tokenizer"]
    assert named["identity"] == want.manifest["tokenizer"]["identity"]
    assert named["name"].startswith(kind)
    assert dataset.text(0) == "hello there<eos>"
    assert pretrain(tokenizer, "out").manifest == dataset.manifest
    forecast = tokmill.plan(ROWS, tokenizer=tokenizer, eos_token="<eos>", **SETTINGS)
    assert forecast.tokens == dataset.n_tokens
    texts = [row["text"] for row in ROWS]
    of_texts = tokmill.encode(texts, tokenizer, eos_token="<eos>")
    of_rows = tokmill.encode(tokmill.render(ROWS, tokenizer=tokenizer, eos_token="<eos>"))
    expected = [ids.tolist() for ids in dataset]
    assert list(of_texts.rows()) == list(of_rows.rows()) == expected
    encoder = pickle.loads(pickle.dumps(tokmill.Encoder(tokenizer, eos_token="<eos>", n_bytes=0)))
    assert encoder(texts).to_pylist() == expected
    assert list(temporary.iterdir()) == []


def test_eos_is_that_of_a_transformers_object(tmp_path, tokenizer_dir):
    tokenizer = of_transformers(tokenizer_dir)
    dataset = tokmill.pretrain(ROWS, tokenizer=tokenizer, output=tmp_path / "out", **SETTINGS)
    assert dataset.manifest["tokenizer"]["eos"]["token"] == "<eos>"


def test_an_array_of_tasks_keeps_the_tokenizer_object(tmp_path, tokenizer_dir, write_rows):
    source = write_rows(tmp_path / "in.jsonl", ROWS)
    tokenizer = of_transformers(tokenizer_dir)
    tokmill.write_plan(source, tokenizer=tokenizer, output=tmp_path / "out", **SETTINGS)
    tokmill.run_part(tmp_path / "out", 0, 1)
    assert len(tokmill.finish(tmp_path / "out")) == 2


@pytest.mark.parametrize("wrong", [5, ["a" * 5000], object(), Library, logging, b"gpt2"])
@pytest.mark.parametrize("call", [tokmill.pretrain, tokmill.plan])
def test_another_value_is_a_short_line(call, wrong):
    with pytest.raises(UsageError) as caught:
        call(ROWS, tokenizer=wrong, output="out")
    assert str(caught.value).startswith("tokenizer: expected")
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)


def test_functions_that_take_paths_alone_name_the_type(tmp_path, tokenizer_dir):
    library = OBJECTS["tokenizers"](tokenizer_dir)
    tokmill.pretrain(ROWS, tokenizer=tokenizer_dir, output=tmp_path / "out", **SETTINGS)
    for call in (tokmill.open, tokmill.verify, tokmill.stats):
        with pytest.raises(UsageError, match="tokenizer: expected a path, found <Tokenizer>"):
            call(tmp_path / "out", tokenizer=library)
