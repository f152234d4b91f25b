"""docs/memory.md and docs/formulas.md say what the code computes with."""

import pytest

from bench.memory_docs import FORMULAS, PAGE, rewritten
from tokmill.bill.text.formulas import formulas_page


def test_the_page_is_what_the_program_writes():
    page = PAGE.read_text(encoding="utf-8")
    assert rewritten(page) == page, "run python -m bench.memory_docs"


def test_the_page_of_formulas_is_what_the_command_prints():
    page = FORMULAS.read_text(encoding="utf-8")
    assert page == formulas_page(), "run python -m bench.memory_docs"


def test_a_page_without_a_block_is_refused():
    page = PAGE.read_text(encoding="utf-8").replace("<!-- grid: begin -->", "")
    with pytest.raises(ValueError, match="expected the blocks schemes, grid, found"):
        rewritten(page)


def test_what_stands_outside_of_the_blocks_is_kept():
    page = rewritten(PAGE.read_text(encoding="utf-8"))
    assert rewritten(f"before {page} after") == f"before {page} after"
