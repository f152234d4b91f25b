from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tokmill.encode.spot as spot
from tokmill.pipeline.road import Road
from tokmill.sources.open import open_slice

FILES = [
    [{"text": "hello"}, b"{bad", {"text": ""}, {"text": "the cat"}],
    [],
    [{"text": "a<|im_start|>b"}, {"text": "the hat in the hat"}],
    [b"null"],
    [{"text": "猫 hello"}, {"text": "x"}, {"text": "  "}, {"text": "<eos>"}],
    [{"text": f"hello {i}"} for i in range(50)],
]


@pytest.fixture
def blocks_and_road(tmp_path, configure, plan_of, write_rows):
    """Give a function that takes settings to the blocks of several files, and a road."""

    def make(**settings):
        paths = [write_rows(tmp_path / f"{i}.jsonl", rows) for i, rows in enumerate(FILES)]
        plan = plan_of(configure(tmp_path / "out", *paths, **settings))
        road = Road(plan.spec)
        blocks = []
        for part in plan.parts:
            for piece in part.slices:
                with open_slice(
                    piece, plan.spec.config.input, road.renderer.schema, 1 << 20
                ) as reader:
                    blocks += reader.blocks()
        return blocks, road

    return make


def plain(encoded) -> dict[str, object]:
    """Give a block's outcome as values that can be compared."""
    found = {field.name: getattr(encoded, field.name) for field in dataclasses.fields(encoded)}
    del found["stage_s"], found["lookup"]
    found["places"] = [encoded.lookup.place(int(row)) for row in encoded.rows]
    found["spot"] = [(c.text.to_pylist(), c.ids.tolist()) for c in encoded.spot]
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
def test_blocks_processed_together_become_what_each_becomes_alone(
    blocks_and_road, settings, monkeypatch
):
    monkeypatch.setattr(spot, "_ONE_IN", 5)
    blocks, road = blocks_and_road(**settings)
    assert len(blocks) == 5
    together = road.process(blocks)
    alone = [encoded for block in blocks for encoded in road.process([block])]
    assert [plain(encoded) for encoded in together] == [plain(encoded) for encoded in alone]
    assert sum(len(encoded.rejects) for encoded in together) >= 3


def test_the_seconds_of_all_blocks_are_the_first_ones(blocks_and_road):
    blocks, road = blocks_and_road()
    together = road.process(blocks)
    assert set(together[0].stage_s) == {
        "parse",
        "render",
        "wait",
        "load engine",
        "encode",
        "narrow",
    }
    assert [encoded.stage_s for encoded in together[1:]] == [{}] * 4


def test_a_reject_of_a_later_block_is_placed_in_its_own_slice(blocks_and_road):
    blocks, road = blocks_and_road(control_tokens_in_text="reject")
    rejects = [encoded.rejects for encoded in road.process(blocks)]
    assert [[reject.place.line for reject in found] for found in rejects] == [
        [2, 3],
        [1],
        [1],
        [4],
        [],
    ]
