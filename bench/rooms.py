"""The lines of each room of the source: how many there are, and how many there may be.

`tests/test_house.py` fails when a room has more lines than its limit. A limit is a ratchet, no aim:
it stands about one part in twenty above what the room has, so that nobody writes densely to stay
below it. Work that makes a room smaller lowers its limit; raising one is a decision, with a reason
in the commit.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tokmill.words import plural

SOURCE = Path(__file__).parents[1] / "src" / "tokmill"
ENDINGS = {".css", ".jinja", ".js", ".py"}
TOP, ALL = "modules at the top", "all"

ROOMS = {
    "cli, api": 4_250,
    "run, executors": 5_050,
    "mixing": 3_250,
    "recipes, render": 3_050,
    "sources": 5_800,
    "chat, masks": 10_000,
    "engines, tokenizer": 6_350,
    "dataset, place": 6_700,
    "trainers, loader": 6_750,
    "page": 3_000,
    "bill": 11_500,
    "settings": 1_900,
    TOP: 3_000,
    ALL: 69_500,
}


def room_lines(source: Path = SOURCE) -> dict[str, int]:
    """Return the lines of each room; a folder that no room has is a room of its own."""
    rooms = {folder: room for room in ROOMS for folder in room.split(", ")}
    found = Counter(dict.fromkeys(ROOMS, 0))
    for path in source.rglob("*"):
        if path.suffix in ENDINGS:
            folders = path.relative_to(source).parts[:-1]
            n_lines = len(path.read_bytes().splitlines())
            found[rooms.get(folders[0], folders[0]) if folders else TOP] += n_lines
            found[ALL] += n_lines
    return dict(found)


def too_large(lines: dict[str, int]) -> list[str]:
    """Return a message for each room that has more lines than its limit."""
    wrong = []
    for room, n_lines in lines.items():
        limit = ROOMS.get(room, 0)
        if n_lines > limit:
            wrong.append(
                f"{room}: {plural(n_lines, 'line')}, limit {limit:,}: delete what is no longer "
                "needed, or raise the limit in bench/rooms.py and give the reason in the commit"
            )
    return wrong
