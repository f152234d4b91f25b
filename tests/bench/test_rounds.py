"""Who runs in which round."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import rounds
from bench.contenders import FIRST, Contender
from bench.corpus import make_corpus
from bench.rounds import Pairing, measure
from bench.values import NotMeasured, Timing

SECONDS = {"tokmill": 1, "slow": 60, "a": 3, "b": 1, "c": 2, "other": 9}


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that measures contenders, and returns who ran in which round."""
    path = tmp_path / "docs.jsonl"
    path.write_text('{"text": "one"}\n')
    pairing = Pairing(make_corpus("docs", path, tmp_path / "made"), "t", "", tmp_path / "cache", 2)

    def run_once(_: Pairing, contender: Contender) -> Timing:
        if contender.name == "missing":
            raise NotMeasured("not installed")
        seconds = SECONDS[contender.name]
        return Timing(seconds, seconds, 3, 1, 1)

    def run(*contenders: Contender) -> dict[str, list[int]]:
        monkeypatch.setattr(rounds, "run_once", run_once)
        found: dict[str, list[int]] = {}
        samples, left_out = measure(pairing, contenders, 3, lambda *_: None)
        for sample in samples:
            found.setdefault(sample.contender, []).append(sample.round)
        assert set(left_out) <= {"missing"}
        return found

    return run


def test_a_slow_peer_runs_once_and_a_warm_contender_once_before(ran):
    found = ran(
        Contender("tokmill", "tokmill", "lines", warm=True),
        Contender("slow", "datatrove", "lines", is_slow=True),
        Contender("missing", "loop", "lines"),
    )
    assert found == {"tokmill" + FIRST: [0], "tokmill": [1, 2, 3], "slow": [1]}


def test_of_the_ways_to_call_an_engine_the_two_fastest_go_on(ran):
    found = ran(
        *(Contender(name, "engine", "lines", rivals="gigatoken") for name in "abc"),
        Contender("other", "engine", "lines", rivals="fastokens"),
    )
    assert found == {"a": [1], "b": [1, 2, 3], "c": [1, 2, 3], "other": [1, 2, 3]}
