from __future__ import annotations

import json
import pickle

import pytest

from tokmill.engines.added_tokens import AddedTokens
from tokmill.engines.choice import CharacterComparison, Continuation, EngineChoice
from tokmill.engines.routing import CharacterSet, Routes

DIFFERS = CharacterSet(((0x88F, 0x88F), (0x323B0, 0x33479)))
ADDED = AddedTokens((3, 5), Routes(CharacterSet.of([0xF90A]), ("<s>", "e\u0301")))


@pytest.mark.parametrize(
    "choice",
    [
        EngineChoice("gigatoken", "0.10.0", "asked for", 3, {"gigatoken": 1.5}, {"x": "no"}),
        EngineChoice(
            "gigatoken",
            "0.10.0",
            "first exact",
            3,
            reference="0.23.1",
            scan=CharacterComparison(
                DIFFERS, "", 67_584, 80_000, CharacterSet(((0x20000, 0x10FFFF),))
            ),
            scan_kept=True,
            continuation=Continuation("gigatoken", DIFFERS, ADDED),
            added=ADDED,
        ),
    ],
)
def test_a_choice_can_be_written_as_json_and_pickled(choice):
    assert EngineChoice.from_json(json.loads(json.dumps(choice.as_json()))) == choice
    assert pickle.loads(pickle.dumps(choice)) == choice


def test_characters_that_differ_or_were_not_compared_are_routed():
    scan = CharacterComparison(DIFFERS, uncompared=CharacterSet(((0x20000, 0x10FFFF),)))
    choice = EngineChoice("gigatoken", "1", "x", scan=scan)
    assert choice.routes.characters.ranges == ((0x88F, 0x88F), (0x20000, 0x10FFFF))
    plain = choice.as_json()
    assert plain["scan"]["differs"] == [[0x88F, 0x88F], [0x323B0, 0x33479]]


@pytest.mark.parametrize(
    "damage",
    [
        {"scan": 3},
        {"scan": {"differs": [[2, 1]]}},
        {"scan": {**CharacterComparison().as_json(), "uncompared": [[2, 1]]}},
        {"continuation": {"name": "x"}},
        {"added_tokens": {"given": ["x"], "characters": [], "strings": []}},
        {"added_tokens": {"given": [], "characters": [], "strings": [""]}},
        {"added_tokens": {"given": [], "characters": [[2, 1]], "strings": []}},
    ],
)
def test_a_damaged_choice_is_refused(damage):
    with pytest.raises((TypeError, ValueError, KeyError)):
        EngineChoice.from_json({"name": "g", "version": "1", "reason": "r", **damage})


def test_a_plan_keeps_its_spot_share():
    kept = EngineChoice.from_json(
        {**EngineChoice("gigatoken", "1", "x").as_json(), "spot_share": 0.25}
    )
    assert kept.spot_share == 0.25


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (EngineChoice("gigatoken", "1", "first exact", refused={"fastokens": "slow"}), ""),
        (EngineChoice("reference", "1", "asked for"), ""),
        (
            EngineChoice(
                "reference",
                "1",
                "no fast engine gives its ids here",
                mb_per_s={"reference": 5.06},
                refused={"gigatoken": "not installed", "fastokens": "x" * 120},
            ),
            "the reference encodes, at about 5.06 MB/s, since no fast engine gives its ids here: "
            f"gigatoken: not installed; fastokens: {'x' * 99}…",
        ),
        (
            EngineChoice(
                "reference",
                "1",
                "no fast engine gives its ids here",
                refused={"gigatoken": "engine gigatoken refuses the tokenizer: WordPiece"},
            ),
            "the reference encodes, since no fast engine gives its ids here: gigatoken: WordPiece",
        ),
    ],
)
def test_only_a_slower_engine_is_explained_with_its_speed_and_reasons(choice, expected):
    assert choice.fallback == expected
