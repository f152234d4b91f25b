"""The benchmark's tables, and the README's."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.contenders import FIRST, Comparison
from bench.ratios import Spread, compare
from bench.tables import (
    BEGIN,
    END,
    SUMMARY_HEAD,
    figure,
    ratio_table,
    readme_block,
    rewrite_readme,
    same_work,
    spread,
    start_line,
    summary_row,
    table,
    throughput_table,
)
from bench.values import Sample, Timing


def sample(name: str, seconds: float, *, number: int = 1, tokens: int = 500_000) -> Sample:
    start_s = seconds / 2 if name.startswith("tokmill") else 0
    timing = Timing(seconds, seconds - start_s, 1_000_000, tokens, 9, start_s)
    return Sample("en", "gpt2", name, number, timing)


def test_a_table_is_markdown_with_figures_to_the_right():
    assert table(["who", "MB/s"], [["tokmill", "7"]]) == (
        "| who     | MB/s |\n|---------|-----:|\n| tokmill |    7 |"
    )


def test_figures_have_three_digits_or_so():
    assert [figure(v) for v in (0.912, 4.5, 12.34, 163.2)] == ["0.91", "4.50", "12.3", "163"]


def test_a_spread_of_one_pair_is_one_figure():
    assert spread(Spread(2, 2, 2)) == "2.00"
    assert spread(Spread(2, 1, 30)) == "2.00 (1.00-30.0)"


def test_the_throughput_table_says_whose_tokens_differ():
    rows = throughput_table(
        [sample("tokmill", 0.5), sample("loop", 4), sample("other", 4, tokens=499_950)]
    ).splitlines()
    assert rows[2].split("|")[4].strip() == "2.00"
    assert [cell.strip() for cell in rows[2].split("|")[5:7]] == ["0.25", "4.00"]
    assert rows[3].split("|")[5].strip() == ""
    assert [row.split("|")[7].strip() for row in rows[2:]] == ["equal", "equal", "-0.0100%"]


def test_a_missed_goal_is_said():
    found = [sample("tokmill", 1), sample("alone", 0.5)]
    ratio = compare(Comparison("s", "tokmill : best", "tokmill", ["alone", "x"], 0.9), found)
    assert ratio is not None
    line = ratio_table([ratio]).splitlines()[2]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == ["tokmill : best (alone)", "0.50", ">= 0.9", "MISSED"]


def test_unequal_work_is_noticed():
    found = [sample("tokmill", 1), sample("loop", 2, tokens=400_000)]
    ratio = compare(Comparison("s", "r", "tokmill", ["loop"]), found)
    assert ratio is not None
    assert not same_work(found, ratio)


def test_the_start_is_told_in_seconds_for_the_first_and_later_runs():
    found = [sample("tokmill, 1 MB", 1), sample("tokmill, 1 MB" + FIRST, 2, number=0)]
    assert start_line(found) == (
        "1 MB, command to committed shards: 1.00 s, start-up 0.50 s of it; "
        "the very first run 2.00 s"
    )
    assert start_line([]) == ""


def test_a_summary_row_has_a_dash_for_what_was_not_run():
    found = [sample("tokmill", 0.5), sample("datatrove", 5)]
    ratio = compare(Comparison("s", "tokmill : datatrove", "tokmill", ["datatrove"]), found)
    assert ratio is not None
    row = summary_row("en", "gpt2", "byte-level BPE", found, [ratio])
    figures = ["1", "2.00", "0.25", "4.00", "-", "10.0", "-", "-", "-", "-"]
    assert row == ["en, gpt2 (byte-level BPE)", *figures]
    assert len(row) == len(SUMMARY_HEAD)
    assert summary_row("en", "gpt2", "?", [], []) == ["en, gpt2 (?)", *"-" * 10]


@pytest.mark.parametrize(
    ("pairs", "runs"),
    [(1, "one run each."), (3, "(least-greatest) of 3, encode_batch once, datatrove once.")],
)
def test_the_readme_says_how_often_it_ran_and_leaves_out_what_nobody_measured(pairs, runs):
    rows = [
        ["en, a", "142", "65.7", "1", "70", "13.4", "20.6", "-", "0.19", "0.2", "0.99"],
        ["zh, a", *"123456", "-", "0.3", "0.4", "1"],
    ]
    stages = [["corpus, tokenizer", "engine"], ["en, a", "47%"], ["zh, a", "71%"]]
    block = readme_block(rows, stages, {"date": "d", "cpu": "c", "cores": 2}, 0.03, pairs)
    head, _, first = block.splitlines()[1:4]
    assert "plain loop" not in head
    assert head.count("|") == first.count("|") == 11
    assert "0.19" in first
    assert runs in block
    assert block.splitlines()[-5:-1][2:] == [
        "| en, a             |    47% |",
        "| zh, a             |    71% |",
    ]


def test_the_readme_keeps_what_stands_around_the_table(tmp_path: Path):
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    rewrite_readme(readme, f"{BEGIN}\nnew\n{END}")
    assert readme.read_text() == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


@pytest.mark.parametrize("text", ["", BEGIN, f"{END}{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_a_readme_without_the_two_comments_is_left_alone(tmp_path: Path, text: str):
    readme = tmp_path / "README.md"
    readme.write_text(text)
    with pytest.raises(ValueError, match="once each"):
        rewrite_readme(readme, f"{BEGIN}{END}")
    assert readme.read_text() == text
