"""Every shape of tests/cli/shapes.py is read, or refused, as shapes.md and docs/records.md say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shapes import SHAPES, Shape

TABLE = Path(__file__).with_name("shapes.md")
PAGE = Path(__file__).parents[2] / "docs" / "records.md"
ROW = re.compile(r"^\| (.+?) \| `(.+?)` \| (.+) \| (.*?) ?\|$", re.MULTILINE)


@pytest.fixture(scope="module")
def rows() -> dict[str, tuple[str, str, str]]:
    """The table: file -> what it is, what pretrain does with it, what sft does."""
    found = ROW.findall(TABLE.read_text(encoding="utf-8"))
    return {file: (what, read, chat) for what, file, read, chat in found}


def cell(outcome: Any, path: Path) -> str:
    """What a run says of its input, as a cell of the table."""
    if outcome.code:
        said = f"exit {outcome.code}: {outcome.error}".replace(f"{path.as_posix()}: ", "")
        text = said.replace(path.parent.as_posix() + "/", "")
    else:
        lines = dict(line.split(": ", 1) for line in outcome.err.splitlines() if ": " in line)
        how = next(
            f"{key} {lines[key].split(';')[0]}" for key in ("renderer", "schema") if key in lines
        )
        text = ": ".join((how, *(lines[key] for key in ("fields",) if key in lines)))
    return text.replace("|", "\\|")


def written(shape: Shape, directory: Path) -> Path:
    path = directory / shape.file
    path.write_bytes(shape.make())
    return path


def test_the_rows_of_the_page_are_rows_of_the_table():
    table = TABLE.read_text(encoding="utf-8").splitlines()
    shown = [row[0] for row in ROW.finditer(PAGE.read_text(encoding="utf-8"))]
    assert len(shown) > 10
    assert [row for row in shown if row not in table] == []


def test_the_table_has_every_shape_once_in_order(rows):
    assert len(SHAPES) > 30
    assert list(rows) == [shape.file for shape in SHAPES]
    assert [what for what, _, _ in rows.values()] == [shape.what for shape in SHAPES]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.file)
def test_pretrain_reads_or_refuses_a_shape_as_the_table_says(shape, rows, pretrain, tmp_path):
    path = written(shape, tmp_path)
    outcome = pretrain(path)
    assert outcome.code in (0, 2)
    assert rows[shape.file][1] == cell(outcome, path)


@pytest.mark.parametrize("shape", [s for s in SHAPES if s.is_chat], ids=lambda shape: shape.file)
def test_sft_reads_a_chat_as_the_table_says(shape, rows, sft, tmp_path):
    path = written(shape, tmp_path)
    outcome = sft(path)
    assert outcome.code == 0, outcome.err
    assert rows[shape.file][2] == cell(outcome, path)
