"""The table of a comparison of masks."""

from __future__ import annotations

from collections import Counter

from bench.sft_tables import markdown
from bench.sft_values import Row


def test_data_sets_of_a_case_are_one_line_with_their_sums():
    rows = [
        Row("trl", "t.jinja", "tok", "a", samples=3, equal=2, explained=Counter({"why": 1})),
        Row("trl", "t.jinja", "tok", "b", samples=2, refused=2),
        Row("trl", "u.jinja", "tok", "a", samples=1, different=1),
    ]
    assert markdown(rows, each=False).splitlines()[2:] == [
        "| trl | t.jinja | tok | 1 of 2 | 5 | 2 | 1 × why | 2 | 0 |",
        "| trl | u.jinja | tok | 1 of 1 | 1 | 0 |  | 0 | 1 |",
    ]


def test_each_data_set_can_have_its_own_line():
    rows = [Row("trl", "t", "tok", "a", samples=1, equal=1), Row("trl", "t", "tok", "b")]
    assert markdown(rows, each=True).splitlines()[2:] == [
        "| trl | t | tok | a | 1 | 1 |  | 0 | 0 |",
        "| trl | t | tok | b | 0 | 0 |  | 0 | 0 |",
    ]
