"""The table of trainers says what the code does, and links to every page."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT, links, read
from tokmill.extensions import find
from tokmill.tables import TRAINERS

PAGE = "docs/trainers/index.md"
KINDS = {"text": "pretrain", "chats": "sft"}
ROWS = {
    found[1]: [cell.strip() for cell in found[2].split(" | ")]
    for found in re.finditer(r"^\| \[?`([\w.-]+)`\S* \| (.*) \|$", read(PAGE), re.MULTILINE)
}


def test_every_trainer_has_a_row() -> None:
    assert set(ROWS) - {"--to"} == set(TRAINERS.rows)


@pytest.mark.parametrize("name", TRAINERS.rows)
def test_a_row_names_kinds_and_reader(name: str) -> None:
    kinds, _, alignment, reader, _ = ROWS[name]
    trainer = find(TRAINERS, name).value
    assert {KINDS[kind] for kind in kinds.split(", ")} == trainer.kinds
    assert reader == (trainer.reader[0] if trainer.reader else "NumPy")
    assert bool(alignment) == ("sft" in trainer.kinds)


def test_every_page_is_linked() -> None:
    pages = {path.name for path in (ROOT / "docs/trainers").glob("*.md")} - {"index.md"}
    assert pages <= set(links(PAGE))
