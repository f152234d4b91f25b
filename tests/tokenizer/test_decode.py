from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest
from tokenizers import Tokenizer as Library
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import Whitespace

from tests.fixtures.tokenizers import train_sentencepiece
from tokmill.engines.engine import load_engine
from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer.decode import TokenDecoder, escaped
from tokmill.tokenizer.hostile_texts import hostile_texts
from tokmill.tokenizer.tokenizer import load_tokenizer


def test_decoding_returns_every_hostile_text(tokenizer):
    texts = hostile_texts(["<eos>", "<tool>"])
    engine = load_engine("reference", tokenizer, control_in_text="text", n_threads=1)
    batch = engine.encode(pa.array(texts, pa.large_string()))
    decode = decoder_of(tokenizer).decode
    bounds = itertools.pairwise(batch.offsets)
    assert [decode(batch.ids[start:stop].tolist()) for start, stop in bounds] == texts


def test_control_tokens_are_shown(tokenizer):
    assert decoder_of(tokenizer).decode([1, 0]) == "<bos><eos>"


def test_a_sentencepiece_model_is_decoded_by_its_own_library(tmp_path: Path):
    model = train_sentencepiece(tmp_path, ["ab ba abba", "ba ba ab"], vocab_size=10)
    given_tokenizer = load_tokenizer(TokenizerSettings(path=str(model)))
    engine = load_engine("reference", given_tokenizer, control_in_text="text", n_threads=1)
    ids = engine.encode(pa.array(["ab ba"], pa.large_string())).ids
    assert decoder_of(given_tokenizer).decode(ids.tolist()) == "ab ba"


# Runs


@pytest.mark.parametrize(
    ("ids", "weights", "expected"),
    [
        ([], [], []),
        ([5], [0], [(False, 0, (5,))]),
        ([0], [0], [(True, 0, (0,))]),
        ([1, 5, 6, 0], [0] * 4, [(True, 0, (1,)), (False, 0, (5, 6)), (True, 0, (0,))]),
        ([0, 1, 5], [0, 1, 1], [(True, 0, (0,)), (True, 1, (1,)), (False, 1, (5,))]),
        ([5, 6, 7], [1, 1, 0.5], [(False, 1, (5, 6)), (False, 0.5, (7,))]),
    ],
)
def test_ids_are_split_where_control_or_weight_changes(tokenizer, ids, weights, expected):
    runs = decoder_of(tokenizer).runs(ids, weights)
    assert [(run.is_control, run.weight, run.ids) for run in runs] == expected


def encoded(tokenizer, text):
    engine = load_engine("reference", tokenizer, control_in_text="text", n_threads=1)
    return engine.encode(pa.array([text], pa.large_string())).ids.tolist()


def decoder_of(tokenizer, *, is_sft=True):
    return TokenDecoder(tokenizer, {*tokenizer.special_ids}, is_sft=is_sft)


def test_texts_of_runs_concatenate_to_the_text_of_all(tokenizer):
    for text in hostile_texts(["<eos>", "<tool>"]):
        ids = [1, *encoded(tokenizer, text), 0]
        for weights in ([0] * len(ids), [i % 3 == 0 for i in range(len(ids))]):
            for by_token in (False, True):
                found = decoder_of(tokenizer).runs(ids, weights, by_token=by_token)
                whole = "".join(run.text for run in found)
                assert escaped(whole) == f"<bos>{text}<eos>"
                assert [id_ for run in found for id_ in run.ids] == ids


def test_a_character_split_by_a_boundary_is_shown_as_bytes(tokenizer):
    ids = encoded(tokenizer, "a€b")
    assert len(ids) == 5
    found = decoder_of(tokenizer).runs(ids, [0, 0, 1, 1, 1])
    assert [(run.is_trained, escaped(run.text)) for run in found] == [
        (False, r"a\xe2"),
        (True, r"\x82\xacb"),
    ]


def test_a_backslash_in_the_text_is_not_a_byte(tokenizer):
    (run,) = decoder_of(tokenizer).runs(encoded(tokenizer, r"\xe2"), [1] * 4)
    assert run.text == r"\xe2"
    assert run.text.isascii()


def test_with_by_token_each_token_has_its_own_text(tokenizer):
    ids = [*encoded(tokenizer, "hello é"), 0, 0]
    text, control = decoder_of(tokenizer).runs(ids, [0] * len(ids), by_token=True)
    assert [escaped(part) for part in text.texts] == ["hello", " ", r"\xc3", r"\xa9"]
    assert text.text == "hello é"
    assert control.texts == ("<eos>", "<eos>")


def test_an_id_without_a_token_is_shown_as_a_number(tokenizer):
    (run,) = decoder_of(tokenizer).runs([5000], [0])
    assert run.text == "[id 5000]"


# A tokenizer with marks for spaces


@pytest.fixture(scope="module")
def piece_model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("pieces")
    as_written = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    texts = ["ab ba abba", "ba ba ab"]
    model = train_sentencepiece(directory, texts, vocab_size=269, byte_fallback=True, **as_written)
    return load_tokenizer(TokenizerSettings(path=str(model)))


def test_the_space_that_a_model_puts_before_a_text_is_not_shown(piece_model):
    ids = [1, *encoded(piece_model, "ab  ba"), 2]
    found = decoder_of(piece_model).runs(ids, [0] * len(ids))
    assert [run.text for run in found] == ["<s>", "ab  ba", "</s>"]
    ids = [1, *encoded(piece_model, " ab"), 2]
    assert decoder_of(piece_model).runs(ids, [0] * len(ids))[1].text == " ab"


def test_a_space_at_a_boundary_between_texts_is_shown(piece_model):
    ids = encoded(piece_model, "ab ba")
    found = decoder_of(piece_model).runs(ids, [0] + [1] * (len(ids) - 1))
    assert "".join(run.text for run in found) == "ab ba"
    assert found[1].text.startswith(" ") or found[0].text.endswith(" ")


def test_the_byte_pieces_of_a_model_are_bytes(piece_model):
    ids = encoded(piece_model, "猫")
    found = decoder_of(piece_model).runs(ids, [0] * (len(ids) - 1) + [1])
    assert [escaped(run.text) for run in found] == [r"\xe7\x8c", r"\xab"]
    assert found[0].text + found[1].text != "猫"
    assert escaped(found[0].text + found[1].text) == "猫"


# A tokenizer whose tokens have no bytes


def test_tokens_without_bytes_are_decoded_by_the_library(tmp_path: Path):
    library = Library(WordPiece({"[UNK]": 0, "[SEP]": 1, "play": 2, "##ing": 3, "a": 4}))
    library.pre_tokenizer = Whitespace()
    library.decoder = WordPieceDecoder()
    library.add_special_tokens(["[SEP]"])
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(TokenizerSettings(path=str(tmp_path), eos_token="[SEP]"))
    found = decoder_of(tokenizer).runs([4, 2, 3, 1], [0, 1, 1, 1])
    assert [run.text for run in found] == ["a", "playing", "[SEP]"]
