"""A small case of the measured grid again, on fake tensors, against the bill."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from bench.memory_grid import case_of, measured_in_child, scores_of, stored


def test_a_case_measured_again_is_met_within_3_percent() -> None:
    names = [case_of(row).name for row in stored()]
    number = names.index("gpt2 precision=fp32 micro_batch=1 sequence=16 optimizer=sgd")
    found = measured_in_child(number)
    wrong = {s.category: s.error for s in scores_of(stored()[number] | found) if s.counted}
    assert {what: error for what, error in wrong.items() if abs(error) > 0.03} == {}
    assert wrong
