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


VALUE = re.compile(r"`([A-Z]\w+)`")


def test_the_values_that_travel_are_made_and_taken_where_the_page_says() -> None:
    table = PAGE.split("| value | made by | taken by |\n")[1].split("\n\n")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines()[1:]]
    assert len(rows) >= 14
    every = "\n".join(path.read_text("utf-8") for path in SOURCE.rglob("*.py"))
    for value, made_by, taken_by in rows:
        for name in VALUE.findall(value):
            assert re.search(rf"^class {name}\b", every, re.MULTILINE), f"no class {name}"
            for file in re.findall(r"`([\w/]+\.py)`", made_by + taken_by):
                text = (SOURCE / file).read_text("utf-8")
                assert re.search(rf"\b{name}\b", text), f"{file} has no {name}"
