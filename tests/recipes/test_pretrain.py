from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pyarrow as pa
import pytest

from tokmill.engines.engine import REFERENCE
from tokmill.recipes.encoded import EncodedBlock
from tokmill.recipes.engines import reference_loader
from tokmill.recipes.pretrain import PretrainRecipe
from tokmill.recipes.spec import RunSpec
from tokmill.sources.formats import open_slice


def strings(texts: list[str]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


@pytest.fixture
def process(tmp_path, configure, plan_of, write_rows):
    """Return a function that encodes rows, which make one block."""

    def run(rows, **settings) -> EncodedBlock:
        source = write_rows(tmp_path / "in.jsonl", rows)
        plan = plan_of(configure(tmp_path / "out", source, **settings))
        recipe = PretrainRecipe(plan.spec)
        (piece,) = plan.parts[0].slices
        with open_slice(piece, plan.spec.config.input, recipe.renderer.schema, 1 << 20) as reader:
            (block,) = reader.blocks()
            (encoded,) = recipe.process([block])
            return encoded

    return run


def documents(encoded: EncodedBlock) -> list[list[int]]:
    bounds = zip(encoded.offsets, encoded.offsets[1:], strict=False)
    return [encoded.tokens[start:stop].tolist() for start, stop in bounds]


def ids(tokenizer, text: str) -> list[int]:
    from tokenizers import Tokenizer as Library

    return Library.from_str(tokenizer.json).encode(text, add_special_tokens=False).ids


def test_a_block_becomes_documents_with_their_rows_bytes_and_places(process, tokenizer):
    encoded = process([{"text": "hello"}, b"{bad", {"text": "猫 hello"}])
    assert documents(encoded) == [[*ids(tokenizer, "hello"), 0], [*ids(tokenizer, "猫 hello"), 0]]
    assert encoded.tokens.dtype == np.dtype("<u2")
    assert encoded.text_bytes.tolist() == [5, 9]
    assert encoded.n_documents == 2
    assert encoded.places[:, 0].tolist() == [1, 3]
    assert [reject.place.line for reject in encoded.rejects] == [2]
    assert encoded.drops == {}
    assert encoded.checks == {}  # the reference is not held against itself


def test_the_reference_is_not_loaded_twice_where_it_encodes_the_run(
    tmp_path, configure, plan_of, write_rows, loads
):
    source = write_rows(tmp_path / "in.jsonl", [{"text": "hello"}])
    plan = plan_of(configure(tmp_path / "out", source))
    recipe = PretrainRecipe(plan.spec)
    (piece,) = plan.parts[0].slices
    with open_slice(piece, plan.spec.config.input, recipe.renderer.schema, 1 << 20) as reader:
        recipe.process(list(reader.blocks()))
    reference_loader(plan.spec, plan.spec.tokenizer)()
    assert loads == [REFERENCE]


def test_bos_and_another_eos_are_placed_if_asked(process, tokenizer):
    encoded = process([{"text": "hello"}], bos_token="<bos>", eos_token="<|im_start|>")
    assert documents(encoded) == [[1, *ids(tokenizer, "hello"), 2]]


def test_limits_count_tokens_without_bos_and_eos(process, tokenizer):
    rows = [{"text": "a"}, {"text": "ab"}, {"text": "abc"}, {"text": "abcd"}]
    assert [len(ids(tokenizer, row["text"])) for row in rows] == [1, 2, 3, 4]
    encoded = process(rows, min_tokens=2, max_tokens=3, bos_token="<bos>")
    assert encoded.rows.tolist() == [1, 2]
    assert [len(document) for document in documents(encoded)] == [4, 5]
    drops = {reason: rows.tolist() for reason, rows in encoded.drops.items()}
    assert drops == {"fewer than min_tokens": [0], "more than max_tokens": [3]}
    assert encoded.text_bytes.tolist() == [2, 3]


def test_a_document_is_dropped_for_one_reason_only(process):
    encoded = process([{"text": "abcd"}], min_tokens=10, max_tokens=3)
    assert {reason: rows.tolist() for reason, rows in encoded.drops.items()} == {
        "fewer than min_tokens": [0]
    }


@pytest.mark.parametrize("engine", ["reference", "gigatoken", "fastokens"])
def test_a_control_token_in_a_text_is_text_unless_asked_otherwise(process, tokenizer, engine):
    rows = [{"text": "a<eos>b"}, {"text": "plain"}]
    as_text = process(rows, engine=engine)
    assert 0 not in documents(as_text)[0][:-1]
    parsed = process(rows, engine=engine, control_tokens_in_text="parse")
    assert documents(parsed)[0] == [*ids(tokenizer, "a"), 0, *ids(tokenizer, "b"), 0]
    rejected = process(rows, engine=engine, control_tokens_in_text="reject")
    assert documents(rejected) == documents(as_text)[1:]
    (reject,) = rejected.rejects
    assert (reject.reason, reject.place.line) == ("control token in text", 1)
    assert reject.raw == b'{"text": "a<eos>b"}'


def test_rejects_of_every_kind_are_in_order_of_place(process):
    rows = [{"text": ""}, b"{bad", {"text": "a<eos>"}, {"text": "fine"}, {"text": ""}, b"[]"]
    encoded = process(rows, control_tokens_in_text="reject")
    assert [reject.place.line for reject in encoded.rejects] == [1, 2, 3, 5, 6]
    assert encoded.n_documents == 1


def test_a_block_without_documents_gives_none(process):
    encoded = process([b"{bad"], min_tokens=3, val_fraction=0.5)
    assert (encoded.n_documents, len(encoded.tokens), encoded.offsets.tolist()) == (0, 0, [0])


def test_the_setting_dtype_makes_ids_wide(process):
    assert process([{"text": "a"}], dtype="uint32").tokens.dtype == np.dtype("<u4")


def test_a_recipe_is_made_of_a_spec_alone(tmp_path, configure, plan_of, write_rows):
    source = write_rows(tmp_path / "in.jsonl", [{"text": "a"}])
    spec = plan_of(configure(tmp_path / "out", source, engine="fastokens")).spec
    assert isinstance(spec, RunSpec)
    recipe = PretrainRecipe(spec)
    assert recipe.spot is not None
    choice = dataclasses.replace(spec.engine, name="reference")
    assert PretrainRecipe(dataclasses.replace(spec, engine=choice)).spot is None


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_the_copies_of_a_huge_record_are_not_taken_for_the_caches_of_the_engine(
    tmp_path, configure, plan_of, write_rows
):
    pytest.importorskip("gigatoken")
    source = write_rows(tmp_path / "in.jsonl", [{"text": "the cat, the hat " * (3 << 19)}])
    settings = {"engine": "gigatoken", "engine_memory_bytes": 32 << 20}
    plan = plan_of(configure(tmp_path / "out", source, **settings))
    recipe = PretrainRecipe(plan.spec)
    (piece,) = plan.parts[0].slices
    for _ in range(2):  # 26 MB, six times in memory
        with open_slice(piece, plan.spec.config.input, recipe.renderer.schema, 1 << 20) as reader:
            assert recipe.process(list(reader.blocks()))[0].n_documents == 1
    assert recipe.engine.n_loads == 1
