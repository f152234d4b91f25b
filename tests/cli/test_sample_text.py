from __future__ import annotations

import pytest

from tokmill.cli.inspect import Look, legend, sample_text
from tokmill.inspect.samples import Sample
from tokmill.tokenizer.decode import TokenRun

PLAIN = Look(in_colour=False, by_token=False, max_chars=0)
BY_TOKEN = Look(in_colour=False, by_token=True, max_chars=0)


def run(*texts: str, weight: float = 0, is_control: bool = False) -> TokenRun:
    return TokenRun(tuple(range(len(texts))), is_control, weight, texts)


def sample(*runs: TokenRun, is_sft: bool = True) -> Sample:
    ids = tuple(id_ for run in runs for id_ in run.ids)
    mask = tuple(int(run.is_trained) for run in runs for _ in run.ids)
    return Sample(0, "train-0000000-0000", ids, mask if is_sft else None, None, runs)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\nhi\n", "«⏎\nhi⏎\n»"),
        ("\n\n", "«⏎\n⏎\n»"),
        (" \t hi", "« ⇥\t hi»"),
        ("a\nb", "«a\nb»"),
        ("hi\r\n", "«hi␍⏎\n»"),
        ("  hi ", "«  hi »"),
    ],
)
def test_white_space_at_a_trained_edge_is_seen(text, expected):
    assert sample_text(sample(run("x\n"), run(text, weight=1), run("\ny")), PLAIN) == (
        f"x\n{expected}\ny"
    )


def test_a_separator_stands_between_all_tokens():
    shown = sample(
        run("<s>", "<s>", is_control=True), run("a", " b"), run("c", "d", weight=1), run("e")
    )
    assert sample_text(shown, BY_TOKEN) == "‹<s>›·‹<s>›·a· b·«c·d»·e"
    assert legend(BY_TOKEN).endswith("· between tokens")
    assert sample_text(sample(run("1·2", "3")), BY_TOKEN) == r"1\xb72·3"
    assert sample_text(sample(run("\udcc2", "\udcb7")), BY_TOKEN) == r"\xc2·\xb7"


def test_what_would_drive_a_terminal_or_is_not_seen_is_written_by_its_number():
    text = "a\x1b[31m\x00\x85\u202e\ufeff\udce7\rb\tc\r\nd"
    assert sample_text(sample(run(text)), PLAIN) == (
        r"a\x1b[31m\x00\x85\u202e\ufeff\xe7␍b" + "\tc\r\nd"
    )


def test_a_weight_other_than_1_is_said_behind_its_span():
    shown = sample(run("a", weight=0.5), run("</s>", weight=0.5, is_control=True), run("b"))
    assert sample_text(shown, PLAIN) == "«a‹</s>›»×0.5b"


def test_a_long_text_is_cut_and_its_marks_close():
    shown = sample(run("0123"), run("4567", weight=1))
    assert sample_text(shown, Look(False, False, 6)) == "0123«45»… 2 more characters"


def test_marks_that_stand_in_the_text_are_written_by_their_numbers():
    runs = (run("« ‹⟦"), run("oui", weight=1))
    assert sample_text(sample(*runs), PLAIN) == r"\xab \u2039⟦«oui»"
