"""The lines of each room of the source: how many there are, may be, and shall be.

`tests/test_house.py` fails when a room has more lines than its limit. An issue that makes a room
smaller lowers its limit; raising one is a decision, with a reason in the commit.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tokmill.words import plural

SOURCE = Path(__file__).parents[1] / "src" / "tokmill"
ENDINGS = {".css", ".jinja", ".js", ".py"}
TOP, ALL = "modules at the top", "all"

ROOMS = {
    # room: (limit, aim)
    "cli, api": (4_020, 3_300),
    "run, executors": (4_400, 3_200),
    "mixing": (2_310, 1_700),
    "recipes, render": (2_110, 1_900),
    "sources": (4_190, 3_600),
    "chat, masks": (7_710, 5_900),
    "engines, tokenizer": (4_550, 4_200),
    "dataset, place": (4_840, 3_600),
    "trainers, loader": (6_450, 5_400),
    "page": (2_740, 2_300),
    "bill": (11_010, 8_300),
    "settings": (1_650, 1_000),
    TOP: (2_420, 1_600),
    ALL: (58_360, 46_000),
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
        limit, _ = ROOMS.get(room, (0, 0))
        if n_lines > limit:
            wrong.append(
                f"{room}: {plural(n_lines, 'line')}, limit {limit:,}: delete what is no longer "
                "needed, or raise the limit in bench/rooms.py and give the reason in the commit"
            )
    return wrong
