"""docs/architecture.md names every room, and only files that exist."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT, read

PAGE = read("docs/architecture.md")
SOURCE = ROOT / "src" / "tokmill"
NAMED = re.findall(r"`([\w./-]+(?:\.(?:py|toml|md)|/))`", PAGE)


def test_every_file_that_is_named_exists() -> None:
    assert len(NAMED) > 30
    here = (SOURCE, ROOT)
    assert [name for name in NAMED if not any((top / name).exists() for top in here)] == []


def described(section: str) -> set[str]:
    table = PAGE.split(f"## {section}\n")[1].split("## ")[0]
    first = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name.rstrip("/") for name in re.findall(r"`([\w./]+)`", " ".join(first))}


def test_every_room_is_described() -> None:
    rooms = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    rooms |= {path.name for path in SOURCE.glob("*.py") if not path.name.startswith("_")}
    assert described("Rooms") == rooms


def test_the_page_is_short() -> None:
    assert len(PAGE.split()) <= 1_000


def test_ten_questions_have_a_file_as_answer() -> None:
    rows = [line for line in PAGE.split("## Where is …")[1].splitlines() if ".py`" in line]
    assert len(rows) >= 10
