"""What the bench of many cores computes: the hold on the GIL, calls in flight, their throughput."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from bench.gil import GilClock, lock_address
from bench.many_cores import NullEngine
from bench.many_cores_proof import in_flight, speed_of, steady_span
from bench.padded_engine import CALL, Padded, read_calls
from tokmill.timing import StageTimer

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def calls(*rows: tuple[int, float, float, int]) -> np.ndarray:
    """Make calls of (process, start, stop, bytes)."""
    made = [(process, start, stop, 0.0, 0.0, n) for process, start, stop, n in rows]
    return np.array(made, CALL)


@linux
def test_the_gil_of_this_process_is_found_and_the_interval_stays():
    before = sys.getswitchinterval()
    assert lock_address() == lock_address()
    assert sys.getswitchinterval() == before


@linux
def test_a_process_that_computes_in_python_holds_the_gil_and_one_that_sleeps_does_not():
    with GilClock() as busy:
        until = time.perf_counter() + 0.3
        while time.perf_counter() < until:
            pass
    with GilClock() as idle:
        time.sleep(0.3)
    assert busy.n_moments
    assert idle.n_moments
    assert busy.held_s > 2 * idle.held_s


def test_calls_in_flight_are_an_average_over_a_span():
    found = calls((1, 0, 4, 10), (1, 1, 3, 10), (1, 2, 6, 10))
    assert in_flight(found, 0, 4) == (4 + 2 + 2) / 4
    assert in_flight(found, 2, 3) == 3


def test_of_a_call_that_crosses_the_end_of_a_span_its_share_counts():
    found = calls((1, 0, 4, 4_000_000), (1, 3, 5, 2_000_000))
    assert speed_of(found, 0, 4) == pytest.approx((4 + 1) / 4)


def test_the_span_begins_with_the_fifth_call_of_a_thread_and_ends_with_the_first_process():
    first = [(1, start, start + 1.0, 1) for start in range(12)]
    second = [(2, start + 0.5, start + 1.5, 1) for start in range(10)]
    assert steady_span(calls(*first, *second), threads=1) == (4.5, 9.5)
    assert steady_span(calls(*first, *second), threads=2) == (8.5, 9.5)


def test_the_null_engine_returns_an_id_for_every_four_bytes_of_each_text():
    text = pa.array(["skipped", "eight by", "", "four"], pa.large_string())[1:]
    found = NullEngine().encode(text, StageTimer())
    assert found.offsets.tolist() == [0, 2, 2, 3]
    assert len(found.ids) == 3


def test_the_padded_engine_encodes_as_the_other_one_and_notes_its_calls(
    tmp_path, monkeypatch, tokenizer
):
    for name, value in {"ENGINE": "gigatoken", "NS": "1000", "CALLS": str(tmp_path)}.items():
        monkeypatch.setenv(f"PADDED_{name}", value)
    text = pa.array(["hello world", "猫猫" * 1000], pa.large_string())
    padded = Padded(tokenizer, parse=False, n_threads=1)
    found = padded.encode(text)
    assert found.ids.tolist() == padded.inner.encode(text).ids.tolist()
    (call,) = read_calls(tmp_path)
    assert call["n_bytes"] == 6011
    assert call["stop_s"] - call["start_s"] >= 6011e-6
    assert padded.renewable is padded.inner.renewable


def test_calls_of_all_processes_are_read_in_the_order_in_which_they_began(tmp_path):
    calls((7, 1, 2, 1), (7, 5, 6, 1)).tofile(tmp_path / "7")
    calls((8, 3, 4, 1)).tofile(tmp_path / "8")
    assert read_calls(tmp_path)["process"].tolist() == [7, 8, 7]
    assert not len(read_calls(SimpleNamespace(iterdir=list)))
