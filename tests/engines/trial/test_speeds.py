"""Costs of engines: what is measured is kept, and says something about other text."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tokmill.engines.engine import FAST_ENGINES, is_installed
from tokmill.engines.trial.remembered import cache_path
from tokmill.engines.trial.speeds import (
    MEASURED,
    SCALED,
    TYPICAL,
    Cost,
    KeptSpeeds,
    unspaced_share,
)
from tokmill.engines.trial.tasks import Speed

needs_fast_engines = pytest.mark.skipif(
    not all(is_installed(name) for name in FAST_ENGINES), reason="an engine has no wheel here"
)
CHINESE = "维基百科是一个内容自由、任何人都能参与编辑的百科全书。"


@pytest.fixture(autouse=True)
def _directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKMILL_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def large(tokenizer):
    """The tiny tokenizer, said to have 150,000 ids."""
    return dataclasses.replace(tokenizer, vocab_size=150_000)


def kept_file():
    return cache_path().with_name("speeds.json")


def rank(tokenizer, unspaced=0.0, n_bytes=10**9, names=FAST_ENGINES, n_threads=2):
    return KeptSpeeds(tokenizer, "text").rank(names, unspaced, n_bytes, n_threads)


def keep(tokenizer, unspaced=0.0, *, gigatoken=(0.1, 8e-9), fastokens=(0.3, 4e-9)):
    costs = {"gigatoken": Cost(*gigatoken), "fastokens": Cost(*fastokens)}
    KeptSpeeds(tokenizer, "text").keep(unspaced, costs)


@pytest.mark.parametrize(
    ("texts", "share"),
    [
        ([], 0),
        (["hello world", "naïve café"], 0),
        (["Съешь ещё этих мягких французских булок, да выпей чаю"], 0),
        ([CHINESE], 1),
        ([CHINESE, "x" * 78], 0.5),
        (["短", "很短"], 0),  # labels
        (["ภาษาไทยเป็นภาษาที่เขียนติดกัน"], 1),
    ],
)
def test_text_without_spaces_is_found_in_any_script(texts, share):
    assert unspaced_share(texts) == pytest.approx(share, abs=0.02)


def test_loading_keeps_one_of_two_threads_busy_and_encoding_all():
    seconds = [Cost(1.0, 10e-9).seconds(10**9, n_threads) for n_threads in (1, 2, 10)]
    assert seconds == pytest.approx([1 + 10, 0.5 + 5, 0.5 + 1])
    assert Cost(1.0, 10e-9).mb_per_s(2) == 200.0


def test_repeated_text_costs_as_much_as_known_text():
    speed = Speed(0.5, 20e-9, 10e-9)
    assert Cost.of(speed) == (0.5, 20e-9)
    assert Cost.of(speed, new_share=0.1) == (0.5, pytest.approx(11e-9))


@needs_fast_engines
@pytest.mark.parametrize(
    ("unspaced", "n_bytes", "best", "is_sure"),
    [
        (0.0, 10**9, "gigatoken", False),  # processors differ
        (0.5, 10**9, "fastokens", True),
        (0.5, 10**8, "fastokens", False),
        (0.5, 10**6, "gigatoken", True),  # loads faster
    ],
)
def test_nothing_measured_the_kind_of_text_and_its_size_decide(
    large, unspaced, n_bytes, best, is_sure
):
    found = rank(large, unspaced, n_bytes)
    assert (found.names[0], found.basis, found.is_sure) == (best, TYPICAL, is_sure)
    assert sorted(found.names) == sorted(FAST_ENGINES)


@needs_fast_engines
def test_what_was_measured_on_similar_text_decides(tokenizer):
    keep(tokenizer)
    found = rank(tokenizer, 0.1, 10**9)
    assert (found.names[0], found.basis, found.is_sure) == ("fastokens", MEASURED, True)
    assert found.costs["fastokens"].load_s == 0.3
    assert rank(tokenizer, 0.0, 10**6).names[0] == "gigatoken"


@needs_fast_engines
def test_a_newer_measurement_replaces_one_on_similar_text_only(tokenizer):
    keep(tokenizer)
    keep(tokenizer, 0.9)
    keep(tokenizer, 0.05, gigatoken=(0.1, 2e-9))
    assert rank(tokenizer).names[0] == "gigatoken"
    assert [one["unspaced"] for one in json.loads(kept_file().read_bytes())] == [0.9, 0.05]


@needs_fast_engines
def test_other_text_is_expected_to_cost_in_proportion(large):
    before = rank(large, 0.5).costs
    typical = rank(large, 0.0).costs
    slower = {name: (2 * cost.load_s, 3 * cost.byte_s) for name, cost in typical.items()}
    keep(large, 0.0, **slower)
    found = rank(large, 0.5)
    assert found.basis == SCALED
    for name, cost in found.costs.items():
        assert cost.load_s == pytest.approx(2 * before[name].load_s)
        assert cost.byte_s == pytest.approx(3 * before[name].byte_s)


@needs_fast_engines
def test_another_tokenizer_of_the_family_says_which_engine_this_processor_likes(tokenizer, large):
    keep(tokenizer, gigatoken=(0.1, 20e-9), fastokens=(0.1, 4e-9))
    other = dataclasses.replace(large, json=large.json + " ")
    found = rank(other)
    assert (found.names[0], found.basis, found.is_sure) == ("fastokens", SCALED, True)
    unigram = dataclasses.replace(large, json="{}")
    assert rank(unigram).basis == TYPICAL


@needs_fast_engines
def test_the_same_kind_of_text_counts_more_than_the_same_tokenizer(tokenizer, large):
    other = dataclasses.replace(large, json=large.json + " ")
    keep(other, 0.0, gigatoken=(0.1, 4e-9), fastokens=(0.1, 40e-9))
    keep(tokenizer, 1.0, gigatoken=(0.1, 900e-9), fastokens=(0.1, 4e-9))
    assert rank(tokenizer, 0.0).names[0] == "gigatoken"


@needs_fast_engines
def test_another_version_of_an_engine_is_not_measured(tokenizer, monkeypatch):
    keep(tokenizer)
    monkeypatch.setattr("tokmill.engines.trial.speeds.engine_version", lambda *_: "99")
    assert rank(tokenizer).basis == TYPICAL


@needs_fast_engines
def test_one_engine_needs_no_doubt(tokenizer):
    found = rank(tokenizer, names=["gigatoken"])
    assert (found.names, found.is_sure) == (["gigatoken"], True)


@pytest.mark.parametrize(
    "content",
    ["", "{", "{}", "[1]", '[{"version": 1}]', '[{"version": 0}]', "\udcff"],
)
@needs_fast_engines
def test_a_damaged_file_is_ignored_and_replaced(tokenizer, content):
    kept_file().parent.mkdir(parents=True)
    kept_file().write_bytes(content.encode("utf-8", "surrogateescape"))
    assert rank(tokenizer).basis == TYPICAL
    keep(tokenizer)
    assert rank(tokenizer).basis == MEASURED


@pytest.mark.parametrize("cost", [[1], [0, 1e-9], ["a", "b"], 3])
@needs_fast_engines
def test_a_cost_that_is_none_is_ignored(tokenizer, cost):
    keep(tokenizer)
    entry = json.loads(kept_file().read_bytes())[0]
    entry["costs"] = dict.fromkeys(entry["costs"], cost)
    kept_file().chmod(0o644)
    kept_file().write_text(json.dumps([entry]))
    assert rank(tokenizer).basis == TYPICAL
