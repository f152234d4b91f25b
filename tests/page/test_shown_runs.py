from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.page.shown_runs import ShownRun, shown_runs
from tokmill.tokenizer.decode import TokenRun


def run(text: str, weight: float = 0, *, is_control: bool = False) -> TokenRun:
    return TokenRun((7,), is_control, weight, (text,))


RUNS = [
    run("<s>", is_control=True),
    run("user\n"),
    run("\nhi ", 1),
    run("</s>", 1, is_control=True),
    run("\n", 0.5),
    run("end"),
]


def test_a_trained_span_opens_with_its_first_run_and_closes_with_its_last():
    shown, is_cut = shown_runs(RUNS, 0)
    assert [(s.opens, s.closes) for s in shown] == [
        (False, False),
        (False, False),
        (True, False),
        (False, True),
        (True, True),
        (False, False),
    ]
    assert not is_cut


@pytest.mark.parametrize(
    ("max_chars", "expected"),
    [
        (1, []),
        (3, ["<s>"]),
        (6, ["<s>", "use"]),
        (8, ["<s>", "user\n"]),
        (9, ["<s>", "user\n", "\n"]),
        (13, ["<s>", "user\n", "\nhi "]),
        (16, ["<s>", "user\n", "\nhi ", "</s>"]),
        (19, ["<s>", "user\n", "\nhi ", "</s>", "\n", "en"]),
    ],
)
def test_text_is_cut_at_a_number_of_characters_but_never_in_a_control_token(max_chars, expected):
    shown, is_cut = shown_runs(RUNS, max_chars)
    assert [stretch.run.text for stretch in shown] == expected
    assert is_cut


def test_what_is_cut_does_not_close():
    shown, _ = shown_runs([run("long text", 1)], 4)
    assert [(s.run.text, s.opens, s.closes) for s in shown] == [("long", True, False)]


def test_as_much_text_as_may_be_shown_is_not_cut():
    assert not shown_runs(RUNS, 20)[1]


@pytest.mark.parametrize(
    ("text", "opens", "closes", "expected"),
    [
        ("\n hi \n", False, False, [("\n hi \n", False)]),
        ("\n hi \n", True, False, [("\n ", True), ("hi \n", False)]),
        ("\n hi \n", False, True, [("\n hi", False), (" \n", True)]),
        ("\n hi \n", True, True, [("\n ", True), ("hi", False), (" \n", True)]),
        (" \n", True, True, [(" \n", True)]),
        ("hi", True, True, [("hi", False)]),
    ],
)
def test_white_space_at_the_edges_of_a_trained_span_is_set_apart(text, opens, closes, expected):
    assert ShownRun(run(text, 1), opens, closes).parts() == [expected]


@given(st.lists(st.text("a \n", min_size=1)), st.booleans(), st.booleans())
def test_the_parts_of_a_run_are_its_texts_however_it_is_cut_into_tokens(texts, opens, closes):
    tokens = TokenRun(tuple(range(len(texts))), False, 1, tuple(texts))
    parts = ShownRun(tokens, opens, closes).parts()
    assert ["".join(text for text, _ in found) for found in parts] == texts
    whole = ShownRun(run("".join(texts), 1), opens, closes).parts()
    marked = [[e for text, is_edge in found for e in [is_edge] * len(text)] for found in parts]
    assert [e for found in marked for e in found] == [
        e for text, is_edge in whole[0] for e in [is_edge] * len(text)
    ]
