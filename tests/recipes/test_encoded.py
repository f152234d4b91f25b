from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tokmill.engines.spot_check as spot
from tokmill.recipes.encoded import EncodedBlock, split_encoded
from tokmill.recipes.pretrain import PretrainRecipe
from tokmill.sources.formats import open_slice
from tokmill.sources.parse_blocks import parse_blocks

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
    del found["stage_s"], found["lookup"]
    found["places"] = [encoded.lookup.place(int(row)) for row in encoded.rows]
    found["checks"] = {name: n.tolist() for name, n in encoded.checks.items() if n.any()}
    found["drops"] = {reason: rows.tolist() for reason, rows in encoded.drops.items()}
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
    assert sum(len(encoded.rejects) for encoded in at_once) >= 3


def test_the_first_block_has_the_seconds_of_all(blocks_and_recipe):
    blocks, recipe = blocks_and_recipe()
    at_once = recipe.process(blocks)
    assert set(at_once[0].stage_s) == {
        "parse",
        "render",
        "wait",
        "load engine",
        "encode",
        "narrow",
    }
    assert [encoded.stage_s for encoded in at_once[1:]] == [{}] * 4


def test_the_place_of_a_reject_counts_from_its_own_slice(blocks_and_recipe):
    blocks, recipe = blocks_and_recipe(control_tokens_in_text="reject")
    rejects = [encoded.rejects for encoded in recipe.process(blocks)]
    assert [[reject.place.line for reject in found] for found in rejects] == [
        [2, 3],
        [1],
        [1],
        [4],
        [],
    ]


def test_samples_are_split_with_their_masks_weights_and_counters(blocks_and_recipe):
    blocks, _recipe = blocks_and_recipe()
    parsed = parse_blocks(blocks)
    first, second = parsed[0], parsed[1]
    n_first, n_second = first.batch.num_rows, second.batch.num_rows
    rows = np.array([0, 0, n_first - 1, n_first, n_first])
    offsets = np.array([0, 2, 3, 5, 9, 10])
    mask = np.array([0, 1, 0, 0, 1, 0, 1, 1, 1, 0], np.uint8)
    encoded = EncodedBlock(
        np.arange(10, dtype=np.uint16),
        offsets,
        rows,
        np.ones(5, np.int64),
        np.zeros(5, bool),
        {"long": np.array([0, n_first, n_first])},
        first.lookup,
        mask=mask,
        loss_weights=mask * np.float32(0.5),
        counters={"straddling tokens": np.array([1, 2, 3, 4, 5])},
        checks={"checked": np.array([1, 0, 0, 0, 1])},
        differences=[(n_first - 1, "one"), (n_first, "other")],
    )
    parts = split_encoded(encoded, {}, [first, second], [3, 4])
    assert (n_first, n_second) == (3, 2)
    assert [part.rows.tolist() for part in parts] == [[0, 0, 2], [0, 0]]
    assert [part.mask.tolist() for part in parts] == [[0, 1, 0, 0, 1], [0, 1, 1, 1, 0]]
    assert [part.loss_weights.tolist() for part in parts] == [
        [0, 0.5, 0, 0, 0.5],
        [0, 0.5, 0.5, 0.5, 0],
    ]
    assert [part.counters["straddling tokens"].tolist() for part in parts] == [[1, 2, 3], [4, 5]]
    assert [part.differences for part in parts] == [[(2, "one")], [(0, "other")]]
    assert [part.checks["checked"].tolist() for part in parts] == [[1, 0, 0], [0, 1]]
    assert [part.drops["long"].tolist() for part in parts] == [[0], [0, 0]]
    assert [list(part.sidecars) for part in parts] == [["mask", "weight"]] * 2


def test_documents_for_pretraining_have_tokens_only(blocks_and_recipe):
    blocks, recipe = blocks_and_recipe()
    for encoded in recipe.process(blocks):
        assert (encoded.mask, encoded.loss_weights, encoded.counters) == (None, None, {})
        assert encoded.sidecars == {}
