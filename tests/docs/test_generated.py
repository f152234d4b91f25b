"""What is generated from the code is what the code says now."""

import pytest

from bench.pages import ROOT, generated, with_block


@pytest.mark.parametrize("name", generated())
def test_a_generated_file_is_what_the_program_writes(name):
    found = (ROOT / name).read_text(encoding="utf-8")
    assert found == generated()[name], "run python -m bench.pages"


def test_a_block_is_replaced_alone_and_must_be_there_once():
    page = "a\n<!-- bench: begin -->\nold\n<!-- bench: end -->\nb\n"
    expected = "a\n<!-- bench: begin -->\nnew\n<!-- bench: end -->\nb\n"
    assert with_block(page, "bench", "new") == expected
    for wrong in ("no comments", page + page):
        with pytest.raises(ValueError, match="once each"):
            with_block(wrong, "bench", "new")
