"""Which engines are tried, in which order, and when they are timed."""

from __future__ import annotations

import dataclasses

import pytest

import tokmill.engines.trial.candidates as module
from tokmill.engines.characters import RARE
from tokmill.engines.choice import EngineChoice, ScanResult
from tokmill.engines.engine import FAST_ENGINES, is_installed
from tokmill.engines.trial.candidates import (
    FASTEST,
    ONLY_ONE,
    Corpus,
    EngineRequest,
    candidates,
    key_of,
    too_little,
)
from tokmill.engines.trial.compare import PARITY_BYTES, CorpusSample
from tokmill.engines.trial.remembered import KeptScans, remember
from tokmill.engines.trial.speeds import MEASURED, TYPICAL, Cost, KeptSpeeds

pytestmark = pytest.mark.skipif(
    not all(is_installed(name) for name in FAST_ENGINES), reason="an engine has no wheel here"
)
GIB = 1 << 30
CHINESE = "维基百科是一个内容自由、任何人都能参与编辑的百科全书。"


@pytest.fixture(autouse=True)
def _directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKMILL_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def request_of(tokenizer):
    """A request for `auto` with a vocabulary of 150,000, some engines compared before."""

    def make(compared=FAST_ENGINES, refused="") -> EngineRequest:
        large = dataclasses.replace(tokenizer, vocab_size=150_000)
        for name in compared:
            KeptScans(large, "text").keep(name, ScanResult(refused=refused))
        return EngineRequest(large, lambda: pytest.fail("loaded"), "auto", "text", 2)

    return make


def corpus(n_bytes, text="hello world", *, is_stream=False):
    """Return a corpus of one text; `asked` lists the samples that were read."""
    asked = []

    def sample(limit_bytes, at_random):
        asked.append((limit_bytes, at_random))
        return CorpusSample([] if is_stream else [text], n_bytes)

    return Corpus(n_bytes, is_stream, sample), asked


def test_the_first_time_all_engines_are_compared_and_timed(request_of):
    found = candidates(request_of(()), corpus(50_000_000)[0])
    assert (tuple(found.names), found.timed, found.reason) == (FAST_ENGINES, True, FASTEST)


def test_candidates_are_found_without_reading_a_sample_for_timing(request_of):
    one, asked = corpus(50_000_000)
    found = candidates(request_of(()), one)
    assert asked == [(PARITY_BYTES, False)]
    found.sample()
    found.sample()
    assert asked[1:] == [(module.TIMED_SAMPLE_BYTES, True)]


def test_the_engine_asked_for_is_the_only_one(request_of):
    asked = dataclasses.replace(request_of(), asked="fastokens")
    found = candidates(asked, corpus(10**12)[0])
    assert (found.names, found.timed, found.reason) == (["fastokens"], False, "asked for")


def test_where_no_fast_engine_could_be_used_none_is_tried_again(request_of):
    asked, name = request_of(()), "reference"
    kept = EngineChoice(name, "1", "none is exact", 9, {name: 5.0}, {"fastokens": "other ids"})
    remember(key_of(asked), kept.as_json())
    found = candidates(asked, corpus(10**12)[0])
    assert (found.names, found.timed, found.reason) == ([name], False, "none is exact")
    assert (found.mb_per_s, found.refused) == ({name: 5.0}, {"fastokens": "other ids"})
    assert candidates(request_of(["fastokens"]), corpus(10**8)[0]).names == ["fastokens"]


def test_an_engine_that_was_refused_is_as_good_as_none(request_of):
    assert candidates(request_of(refused="differs"), corpus(10**8)[0]).timed


@pytest.mark.parametrize("text", ["hello world", CHINESE])
def test_the_only_engine_that_was_compared_is_taken_up_to_128_mib(request_of, text):
    found = candidates(request_of(["gigatoken"]), corpus((1 << 27) - 1, text)[0])
    assert (found.names, found.timed, found.reason) == (["gigatoken"], False, ONLY_ONE)
    found = candidates(request_of(["gigatoken"]), corpus(1 << 27, text)[0])
    assert (tuple(found.names), found.timed) == (FAST_ENGINES, True)
    assert not candidates(request_of(), corpus(2 * GIB, CHINESE)[0]).timed


@pytest.mark.parametrize(
    ("n_bytes", "text", "first"),
    [(150_000_000, CHINESE, "fastokens"), (10_000_000, CHINESE, "gigatoken")],
)
def test_where_typical_speeds_differ_much_they_decide(request_of, n_bytes, text, first):
    found = candidates(request_of(), corpus(n_bytes, text)[0])
    assert (found.names[0], found.timed, found.reason) == (first, False, TYPICAL)
    assert found.mb_per_s == {}  # nothing was measured


def test_where_they_are_close_engines_are_timed_for_large_input_only(request_of):
    small, large = (candidates(request_of(), corpus(n)[0]) for n in (300_000_000, 800_000_000))
    assert (small.timed, small.reason, small.names[0]) == (False, TYPICAL, "gigatoken")
    assert (large.timed, large.reason) == (True, FASTEST)


@pytest.mark.parametrize("n_bytes", [50_000_000, 10 * GIB])
def test_what_was_measured_before_decides_for_any_size(request_of, n_bytes):
    asked = request_of()
    costs = {"gigatoken": Cost(0.1, 8e-9), "fastokens": Cost(0.1, 4e-9)}
    KeptSpeeds(asked.tokenizer, "text").keep(0.0, costs)
    found = candidates(asked, corpus(n_bytes)[0])
    assert (found.names, found.timed) == (["fastokens", "gigatoken"], False)
    assert (found.reason, found.mb_per_s) == (MEASURED, {"gigatoken": 250.0, "fastokens": 500.0})


@pytest.mark.parametrize(
    ("n_bytes", "text", "is_needed"),
    [
        (GIB - 1, "hello 😀中", False),
        (GIB, "hello", True),
        (10**6, "𠜎", True),
        (10**6, "𠜎" + "a" * 100 + "\0" + "b" * 30_000, False),
        (10**6, "𠜎" + "a" * 100 + "\0" + "b" * 10_000, True),
    ],
)
def test_all_characters_are_compared_for_large_input_or_where_rare_ones_are_many(
    request_of, n_bytes, text, is_needed
):
    one = Corpus(n_bytes, False, lambda *_: CorpusSample(text.split("\0"), n_bytes))
    asked = dataclasses.replace(request_of(()), asked="gigatoken")
    assert module.needs_all_characters(one) == is_needed
    assert candidates(asked, one).all_characters == is_needed
    assert candidates(request_of(()), one).all_characters == is_needed
    assert candidates(request_of(), one).all_characters == is_needed


def test_a_comparison_of_common_characters_does_not_serve_where_all_are_needed(request_of):
    asked = request_of(())
    for name in FAST_ENGINES:
        KeptScans(asked.tokenizer, "text").keep(name, ScanResult(uncompared=RARE))
    small, rare = (corpus(40_000_000, text)[0] for text in ("hello", "𠜎"))
    assert not candidates(asked, small).timed
    assert candidates(asked, rare).timed
    assert [
        bool(too_little(asked, Corpus(5 << 20, False, one.sample))) for one in (small, rare)
    ] == [False, True]


def test_a_stream_counts_as_large_and_is_not_timed_again(request_of):
    found = candidates(request_of(), corpus(0, is_stream=True)[0])
    assert (found.names[0], found.timed) == ("gigatoken", False)
    assert too_little(request_of(()), corpus(0, is_stream=True)[0]) == ""


@pytest.mark.parametrize(
    ("n_ids", "text", "tried_from", "scanned_from"),
    [
        (500, "hello", 2 << 20, 8 << 20),
        (150_000, "hello", 3_600_000, 24_000_000),
        (150_000, "𠜎", 3_600_000, 32 << 20),
    ],
)
def test_little_text_is_not_worth_a_comparison(request_of, n_ids, text, tried_from, scanned_from):
    def is_too_little(n_bytes: int) -> bool:
        return bool(too_little(request, corpus(n_bytes, text)[0]))

    request = request_of(())
    small = dataclasses.replace(request.tokenizer, vocab_size=n_ids)
    request = dataclasses.replace(request, tokenizer=small)
    assert is_too_little(scanned_from - 1)
    assert not is_too_little(scanned_from)
    request_of(FAST_ENGINES)  # an earlier run compares them
    assert is_too_little(tried_from - 1)
    assert not is_too_little(tried_from)


def test_no_sample_is_read_to_weigh_a_small_plain_file(request_of):
    one, asked = corpus(1_000_000)
    assert too_little(request_of(), one)
    assert asked == []


def test_packed_input_is_weighed_by_its_text(request_of):
    def packed(text_bytes: int) -> Corpus:
        return Corpus(1000, False, lambda *_: CorpusSample(["hello"], text_bytes), True)

    assert candidates(request_of(["gigatoken"]), packed(1 << 27)).timed
    assert too_little(request_of(), packed(3_599_999))
    assert not too_little(request_of(), packed(3_600_000))
    assert module.needs_all_characters(packed(GIB))
    assert candidates(request_of(), packed(800_000_000)).timed
