from __future__ import annotations

import io

from rich.console import Console

from tokmill.page.lengths import lengths_table


def lines(histogram: list[int], context: int) -> list[list[str]]:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    console.print(lengths_table(histogram, context, what="documents"))
    assert isinstance(console.file, io.StringIO)
    return [line.split() for line in console.file.getvalue().splitlines()]


def test_each_class_has_its_count_its_share_a_bar_and_its_side_of_the_context():
    _, *rows = lines([0, 5, 0, 10, 5], 10)
    assert [" ".join(row) for row in rows] == [
        f"2 to 3 5 25.0% {'#' * 15} fit",
        "4 to 7 0 0.0% fit",
        f"8 to 15 10 50.0% {'#' * 30} some fit",
        f"16 to 31 5 25.0% {'#' * 15} too long",
    ]


def test_a_class_that_ends_with_the_context_fits_and_one_that_begins_behind_it_does_not():
    _, *rows = lines([1, 1, 1, 1], 3)
    assert [row[-1] for row in rows] == ["fit", "fit", "long", "long"]
    assert rows[0][0] == "1"


def test_a_dataset_without_documents_has_no_class():
    assert len(lines([0, 0], 10)) == 1
    assert len(lines([], 10)) == 1
