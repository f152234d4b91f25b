"""The table of `auto` against engines forced."""

from __future__ import annotations

import pytest

from bench.auto import compare, cut
from bench.values import Timing


def timings(*seconds, engine="gigatoken"):
    engine_of = {"engine": {"name": engine}}
    return [Timing(s, s, 10**7, 1, 1, notes={**engine_of, "command_cpu_s": 2 * s}) for s in seconds]


def test_the_first_run_and_the_later_ones_are_held_against_the_better_engine():
    first, later = compare(
        "en 50, gpt2",
        {
            "auto": timings(8, 2, 4, 2, engine="fastokens"),
            "gigatoken": timings(4, 4, 4, 4),
            "fastokens": timings(12, 2, 2, 2),
        },
    )
    assert (first.runs, first.pairs, first.took) == ("very first", [0.5], "fastokens")
    assert (later.runs, later.pairs, later.cpu) == ("later", [1, 0.5, 1], 1)
    assert first.cpu == 0.5
    assert later.mb_per_s == {"auto": 5, "gigatoken": 2.5, "fastokens": 5}
    assert first.cells()[-3:] == ["0.50", "fastokens", "MISSED"]
    assert later.cells()[-4:] == ["1.00 (0.50-1.00)", "1.00", "fastokens", "holds"]


def test_a_tokenizer_that_no_engine_takes_has_no_row():
    assert compare("en 50, t5", {"auto": timings(1, 1)}) == []


def test_an_engine_that_is_left_out_is_a_dash():
    (row, _) = compare("en 50, x", {"auto": timings(1, 1), "fastokens": timings(1, 1)})
    assert row.cells()[3] == "-"


@pytest.mark.parametrize(("n_lines", "label"), [(20_000, "en 1"), (5_000, "en 1 (2.0 times)")])
def test_a_small_corpus_is_repeated_and_the_label_says_so(tmp_path, n_lines, label):
    (tmp_path / "a.jsonl").write_bytes(b"".join(b"%099d\n" % i for i in range(n_lines)))
    corpus = cut("en", tmp_path / "a.jsonl", 1, tmp_path)
    assert corpus.path.stat().st_size == 10**6
    assert corpus.name == label
