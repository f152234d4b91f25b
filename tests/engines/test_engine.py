from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import sys

import numpy as np
import pyarrow as pa
import pytest

from tokmill.engines.engine import (
    FAST_ENGINES,
    REFERENCE,
    engine_version,
    is_installed,
    load_engine,
)
from tokmill.errors import TokenizerError
from tokmill.tables import ENGINES
from tokmill.tokenizer.control_tokens import control_token_strings
from tokmill.tokenizer.hostile_texts import hostile_texts

CONTROL = ("text", "parse", "reject")


def strings(texts: list[str]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def word_level(tokenizer):
    """A tokenizer of a kind that no fast engine supports."""
    data = json.loads(tokenizer.json)
    data["model"] = {"type": "WordLevel", "vocab": {"hello": 0, "<unk>": 1}, "unk_token": "<unk>"}
    return dataclasses.replace(tokenizer, name="words", json=json.dumps(data))


@pytest.fixture(autouse=True)
def _skip_where_there_is_no_wheel(request):
    name = getattr(request.node, "callspec", None) and request.node.callspec.params.get("name")
    if name in FAST_ENGINES and not is_installed(name):
        pytest.skip(f"{name} has no wheel here")


def test_the_table_holds_every_engine_of_the_settings():
    assert ("auto", REFERENCE, *FAST_ENGINES, "nanotoken") == ENGINES.choices


@pytest.mark.parametrize("control_in_text", CONTROL)
@pytest.mark.parametrize("name", FAST_ENGINES)
def test_an_engine_gives_the_ids_of_the_reference_on_hostile_texts(
    tokenizer, name, control_in_text
):
    text = strings(hostile_texts([*control_token_strings(tokenizer), "<tool>"]))
    settings = {"control_in_text": control_in_text, "n_threads": 2}
    expected = load_engine(REFERENCE, tokenizer, **settings).encode(text)
    batch = load_engine(name, tokenizer, **settings).encode(text)
    assert np.array_equal(batch.offsets, expected.offsets)
    assert np.array_equal(batch.ids, expected.ids)
    assert (batch.ids.dtype, batch.offsets.dtype) == (np.uint32, np.int64)


@pytest.mark.parametrize("name", [REFERENCE, *FAST_ENGINES])
def test_control_strings_in_text_become_control_tokens_only_where_parsed(tokenizer, name):
    text = strings(["a<eos>b<bos><|im_start|>"])
    found = {
        control: set(
            load_engine(name, tokenizer, control_in_text=control, n_threads=1)
            .encode(text)
            .ids.tolist()
        )
        & set(tokenizer.special_ids)
        for control in CONTROL
    }
    assert found == {"text": set(), "reject": set(), "parse": {0, 1, 2}}


@pytest.mark.parametrize("name", [REFERENCE, *FAST_ENGINES])
def test_every_engine_takes_empty_batches_empty_texts_and_slices(tokenizer, name):
    engine = load_engine(name, tokenizer, control_in_text="text", n_threads=1)
    whole = strings(["hello", "", "world 猫", "the cat", ""])
    batch = engine.encode(whole)
    assert engine.encode(whole.slice(0, 0)).offsets.tolist() == [0]
    assert engine.encode(strings([])).ids.tolist() == []
    assert engine.encode(strings(["", ""])).offsets.tolist() == [0, 0, 0]
    assert batch.n_documents == 5
    for start in range(5):
        part = engine.encode(whole.slice(start, 2))
        stop = min(start + 2, 5)
        assert (
            part.offsets.tolist()
            == (batch.offsets[start : stop + 1] - batch.offsets[start]).tolist()
        )
        assert part.ids.tolist() == batch.ids[batch.offsets[start] : batch.offsets[stop]].tolist()


@pytest.mark.parametrize("name", [REFERENCE, *FAST_ENGINES])
def test_an_engine_knows_its_name_and_version(tokenizer, name):
    engine = load_engine(name, tokenizer, control_in_text="text", n_threads=1)
    assert engine.name == name
    version = engine_version(name, tokenizer)
    assert version.split()[-1] == importlib.metadata.version(
        "tokenizers" if name == REFERENCE else name
    )


@pytest.mark.parametrize("name", FAST_ENGINES)
def test_an_engine_that_refuses_a_tokenizer_says_so_in_one_line(tokenizer, name):
    with pytest.raises(TokenizerError) as caught:
        load_engine(name, word_level(tokenizer), control_in_text="text", n_threads=1)
    assert str(caught.value).startswith(f"engine {name} refuses words: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", FAST_ENGINES)
def test_a_model_without_an_equivalent_json_is_refused(tokenizer, name):
    model = dataclasses.replace(tokenizer, name="m.model", kind="sentencepiece", json="")
    with pytest.raises(TokenizerError) as caught:
        load_engine(name, model, control_in_text="text", n_threads=1)
    assert str(caught.value) == (
        f"engine {name} cannot take m.model: no tokenizer.json says the same"
    )


def test_the_reference_of_a_sentencepiece_model_says_its_own_version(tokenizer):
    model = dataclasses.replace(tokenizer, kind="sentencepiece")
    version = importlib.metadata.version("sentencepiece")
    assert engine_version(REFERENCE, model) == f"sentencepiece {version}"


@pytest.mark.parametrize("name", FAST_ENGINES)
def test_an_engine_without_its_package_says_so(tokenizer, monkeypatch, name):
    monkeypatch.delitem(sys.modules, f"tokmill.engines.{name}", raising=False)
    for package in (name, f"{name}.{name}_rs"):
        monkeypatch.setitem(sys.modules, package, None)  # as where there is no wheel
    assert not is_installed(name)
    with pytest.raises(TokenizerError, match=f"^engine {name} is not installed here: "):
        load_engine(name, tokenizer, control_in_text="text", n_threads=1)


def test_gigatoken_needs_awkward_too(monkeypatch):
    monkeypatch.setitem(sys.modules, "awkward", None)
    assert not is_installed("gigatoken")


def test_the_reference_is_installed():
    assert is_installed(REFERENCE)
