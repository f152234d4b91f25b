"""The rooms of the source: their lines and limits, how dense they are, and how many decisions.

    python -m bench.rooms                        print them

`tests/test_house.py` fails when a room has more lines than its limit. A limit is a ratchet, no aim:
it stands about one part in twenty above what the room has, so that nobody writes densely to stay
below it. Work that makes a room smaller lowers its limit; raising one is a decision, with a reason
in the commit.

The other figures are printed, and held by no limit:

- nodes a line: nodes of the syntax tree on a line of code, without blank lines, comments and
  docstrings. Dense lines must be read twice; other projects of the field have 6.6 to 7.7.
- decisions of a function: each `if`, loop, `except`, case, `and`, `or`, and each loop and condition
  of a comprehension. Nine of ten functions should have 7 or less, and none more than 20.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.tables import table
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).parents[1] / "src" / "tokmill"
ENDINGS = {".css", ".jinja", ".js", ".py"}
TOP, ALL = "modules at the top", "all"
MANY, TOO_MANY = 10, 20
"""Decisions of a function that is worth a look, and of one that must be divided."""

ROOMS = {
    "cli, api": 7_150,
    "run": 6_520,
    "mixing": 4_900,
    "recipes, rendering": 5_600,
    "sources": 6_640,
    "chat, masks": 10_750,
    "engines, tokenizer": 6_600,
    "dataset, place, stores": 9_250,
    "trainers, loader": 9_100,
    "page": 1_900,
    "inspect": 3_250,
    "bill": 13_050,
    "machine": 520,
    "settings": 2_300,
    TOP: 2_890,
    ALL: 90_000,
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Gauges:
    """What is counted of a room.

    Attributes:
        n_lines: all lines of its files.
        n_code_lines: lines of Python that are neither blank nor a comment nor in a docstring.
        n_nodes: nodes of its syntax trees.
        decisions: the decisions of each function, by its place.
    """

    n_lines: int = 0
    n_code_lines: int = 0
    n_nodes: int = 0
    decisions: dict[str, int] = field(default_factory=dict)

    def add(self, path: Path, name: str) -> None:
        """Add a file that is called `name`."""
        content = path.read_bytes()
        self.n_lines += len(content.splitlines())
        if path.suffix != ".py":
            return
        tree = ast.parse(content)
        self.n_nodes += sum(1 for _ in ast.walk(tree))
        self.n_code_lines += _code_lines(content, tree)
        for node in ast.walk(tree):
            if isinstance(node, Function):
                self.decisions[f"{name}:{node.lineno} {node.name}"] = decisions_of(node)

    def nodes_a_line(self) -> float:
        """Return the nodes on a line of code; 0 without code."""
        return self.n_nodes / max(1, self.n_code_lines)

    def p90(self) -> int:
        """Return the decisions that nine of ten functions do not exceed; 0 without functions."""
        counts = sorted(self.decisions.values())
        return counts[len(counts) * 9 // 10] if counts else 0

    def over(self, limit: int) -> list[str]:
        """Return the functions with more decisions than `limit`, those with the most first."""
        found = [name for name, n_decisions in self.decisions.items() if n_decisions > limit]
        return sorted(found, key=lambda name: -self.decisions[name])


def _code_lines(content: bytes, tree: ast.Module) -> int:
    """Return the number of lines that are neither blank nor a comment nor in a docstring."""
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docstrings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    n_lines = 0
    for number, line in enumerate(content.splitlines(), 1):
        text = line.strip()
        if text and not text.startswith(b"#") and number not in docstrings:
            n_lines += 1
    return n_lines


def decisions_of(function: Function) -> int:
    """Return the decisions of a function, without those of functions and classes inside it."""
    n_decisions = 0
    for node in _own_nodes(function):
        if isinstance(node, ast.BoolOp):
            n_decisions += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            n_decisions += 1 + len(node.ifs)
        elif isinstance(
            node, ast.If | ast.IfExp | ast.For | ast.While | ast.ExceptHandler | ast.match_case
        ):
            n_decisions += 1
    return n_decisions


def _own_nodes(function: Function) -> Iterator[ast.AST]:
    """Yield the nodes inside a function that belong to no function or class inside it."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def gauges(source: Path = SOURCE) -> dict[str, Gauges]:
    """Return what is counted of each room; a folder that no room has is a room of its own."""
    room_of = {}
    for room in ROOMS:
        for folder in room.split(", "):
            room_of[folder] = room
    found: dict[str, Gauges] = defaultdict(Gauges, {room: Gauges() for room in ROOMS})
    for path in sorted(source.rglob("*")):
        if path.suffix in ENDINGS:
            place = path.relative_to(source)
            folder = place.parts[0]
            room = room_of.get(folder, folder) if len(place.parts) > 1 else TOP
            found[room].add(path, place.as_posix())
            found[ALL].add(path, place.as_posix())
    return dict(found)


def too_large(found: dict[str, Gauges]) -> list[str]:
    """Return a message for each room that has more lines than its limit."""
    wrong = []
    for room, gauge in found.items():
        limit = ROOMS.get(room, 0)
        if gauge.n_lines > limit:
            wrong.append(
                f"{room}: {plural(gauge.n_lines, 'line')}, limit {limit:,}: delete what is no "
                "longer needed, or raise the limit in bench/rooms.py and give the reason in the "
                "commit"
            )
    return wrong


def rooms_table(found: dict[str, Gauges]) -> str:
    """Return what is counted of each room as a table."""
    rows = [
        [
            room,
            f"{gauge.n_lines:,}",
            f"{ROOMS.get(room, 0):,}",
            f"{gauge.nodes_a_line():.1f}",
            f"{gauge.p90()}",
            f"{len(gauge.over(MANY))}",
            f"{len(gauge.over(TOO_MANY))}",
        ]
        for room, gauge in found.items()
    ]
    decisions = ["decisions, p90", f"over {MANY}", f"over {TOO_MANY}"]
    return table(["room", "lines", "limit", "nodes a line", *decisions], rows)


def main() -> None:
    """Print the table, and the functions with too many decisions."""
    found = gauges()
    print(rooms_table(found))
    for name in found[ALL].over(TOO_MANY):
        print(f"{name}: {found[ALL].decisions[name]} decisions")


if __name__ == "__main__":
    main()
