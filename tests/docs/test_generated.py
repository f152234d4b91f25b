"""What is generated from the code is what the code says now."""

import pytest

from bench.pages import ROOT, generated, with_block


def test_generated_files_are_what_the_program_writes():
    texts = generated().items()
    old = [name for name, text in texts if (ROOT / name).read_text(encoding="utf-8") != text]
    assert old == [], "run python -m bench.pages"


def test_a_block_is_replaced_alone_and_must_be_there_once():
    page = "a\n<!-- bench: begin -->\nold\n<!-- bench: end -->\nb\n"
    expected = "a\n<!-- bench: begin -->\nnew\n<!-- bench: end -->\nb\n"
    assert with_block(page, "bench", "new") == expected
    for wrong in ("no comments", page + page):
        with pytest.raises(ValueError, match="once each"):
            with_block(wrong, "bench", "new")
