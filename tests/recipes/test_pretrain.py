"""Blocks of records become encoded documents with bos, eos and a split."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

import tokmill.engines.spot_check as spot
from tokmill.errors import TokenizerError
from tokmill.recipes.encoded import EncodedBlock, add_bos_eos, validation_documents
from tokmill.recipes.pretrain import PretrainRecipe
from tokmill.sources.formats import open_slice
from tokmill.values import TokenBatch


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


FILES = [
    [{"text": "hello"}, b"{bad", {"text": ""}, {"text": "the cat"}],
    [],
    [{"text": "a<|im_start|>b"}, {"text": "the hat in the hat"}],
    [b"null"],
    [{"text": "猫 hello"}, {"text": "x"}, {"text": "  "}, {"text": "<eos>"}],
    [{"text": f"hello {i}"} for i in range(50)],
]


@pytest.fixture
def blocks_and_recipe(tmp_path, configure, plan_of, write_rows):
    """Return a function that makes the blocks of several files, and a recipe, from settings."""

    def make(**settings):
        paths = [write_rows(tmp_path / f"{i}.jsonl", rows) for i, rows in enumerate(FILES)]
        plan = plan_of(configure(tmp_path / "out", *paths, **settings))
        recipe = PretrainRecipe(plan.spec)
        blocks = []
        for part in plan.parts:
            for piece in part.slices:
                with open_slice(
                    piece, plan.spec.config.input, recipe.renderer.schema, 1 << 20
                ) as reader:
                    blocks += reader.blocks()
        return blocks, recipe

    return make


def plain(encoded) -> dict[str, object]:
    """Return the result of a block as values that can be compared."""
    found = {field.name: getattr(encoded, field.name) for field in dataclasses.fields(encoded)}
    del found["stage_s"]
    found["checks"] = {name: n.tolist() for name, n in encoded.checks.items() if n.any()}
    found["drops"] = {reason: rows.tolist() for reason, rows in encoded.drops.items()}
    found["counters"] = {name: n.tolist() for name, n in encoded.counters.items() if n.any()}
    found["lost"] = {reason: rows.tolist() for reason, rows in encoded.lost.items()}
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in found.items()}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"min_tokens": 3, "max_tokens": 6, "bos_token": "<bos>"},
        {"control_tokens_in_text": "reject"},
        {"val_fraction": 0.5, "engine": "gigatoken"},
    ],
)
def test_blocks_processed_at_once_have_the_results_of_each_alone(
    blocks_and_recipe, settings, monkeypatch
):
    monkeypatch.setattr(spot, "_SHARE_OF_FAST", 0.5)
    blocks, recipe = blocks_and_recipe(**settings)
    assert len(blocks) == 5
    at_once = recipe.process(blocks)
    alone = [encoded for block in blocks for encoded in recipe.process([block])]
    assert [plain(encoded) for encoded in at_once] == [plain(encoded) for encoded in alone]
    assert sum(len(encoded.rejects) for encoded in at_once) >= 2


def test_the_place_of_a_reject_counts_from_its_own_slice(blocks_and_recipe):
    blocks, recipe = blocks_and_recipe(control_tokens_in_text="reject")
    rejects = [encoded.rejects for encoded in recipe.process(blocks)]
    assert [[reject.place.line for reject in found] for found in rejects] == [
        [2],
        [1],
        [1],
        [4],
        [],
    ]


U2, U4 = np.dtype("<u2"), np.dtype("<u4")

DOCUMENTS = st.lists(st.lists(st.integers(0, 65_535), max_size=4), max_size=6)


def batch_of(documents: list[list[int]]) -> TokenBatch:
    offsets = np.cumsum([0] + [len(document) for document in documents])
    ids = np.array([token for document in documents for token in document], np.uint32)
    return TokenBatch(ids, offsets.astype(np.int64))


@given(documents=DOCUMENTS, bos_id=st.none() | st.integers(0, 9), dtype=st.sampled_from([U2, U4]))
def test_any_documents_get_bos_and_eos_as_in_a_loop(documents, bos_id, dtype):
    tokens, offsets = add_bos_eos(batch_of(documents), 3, bos_id, dtype)
    before = [] if bos_id is None else [bos_id]
    expected = [before + document + [3] for document in documents]
    assert tokens.tolist() == [token for document in expected for token in document]
    assert np.diff(offsets).tolist() == [len(document) for document in expected]
    assert (tokens.dtype, offsets.dtype) == (dtype, np.int64)


@pytest.mark.parametrize("too_large", [65_536, 2**32 - 1])
def test_an_id_that_does_not_fit_is_an_error_and_never_another_id(too_large):
    with pytest.raises(TokenizerError) as caught:
        add_bos_eos(batch_of([[7], [too_large]]), 2, None, U2)
    assert str(caught.value) == f"token id {too_large} does not fit uint16"


@pytest.mark.parametrize(("eos_id", "bos_id"), [(70_000, None), (2, 70_000)])
def test_a_bos_or_eos_that_does_not_fit_is_an_error_too(eos_id, bos_id):
    with pytest.raises(TokenizerError, match=r"^token id 70000 does not fit uint16$"):
        add_bos_eos(batch_of([[7]]), eos_id, bos_id, U2)


def strings(texts: list[str]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


@given(st.lists(st.text(max_size=5), max_size=8), st.floats(0, 1))
def test_validation_is_decided_by_the_hash_of_the_text_alone(texts, fraction):
    decided = validation_documents(strings(texts), fraction)
    expected = [xxhash.xxh3_64(text.encode()).intdigest() / 2**64 < fraction for text in texts]
    assert decided.tolist() == expected
    sliced = validation_documents(strings(["x", *texts, "y"]).slice(1, len(texts)), fraction)
    assert sliced.tolist() == expected
