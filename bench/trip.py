"""The functions and modules of tokmill that records cross, counted while it runs.

    python -m bench.trip                         count them
    python -m bench.trip --list TRIP             list them in the order of their first call

`block` and `chat` are what runs while parts are made: three records of JSON Lines, and two chats
with the template of the tokenizer. `call` is the whole call of `tokmill.pretrain` with
the three records. All calls begin with an empty cache and have one worker, so that parts are made
in this process; all of its threads count. Lambdas, comprehensions and bodies of classes count as
functions, bodies of modules do not. Python 3.12 and newer inline comprehensions, and count fewer.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tokmill
from bench.rooms import SOURCE
from bench.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

SAMPLES = SOURCE.parents[1] / "data_samples"
PART = ("run/part.py", "run_part")
"""What is called while this function runs is what a block crosses."""
TRIPS = {"block": "60, 15", "chat": "-, 25", "call": "450, -"}
"""The trips, with what is aimed at: functions and modules."""

Calls = Counter[tuple[str, str]]
"""Calls of functions by module and name, in the order of the first one."""


class Tracer:
    """Counts the calls of tokmill's functions on all threads: of a call, and of its parts."""

    def __init__(self) -> None:
        self.whole: Calls = Counter()
        self.parts: Calls = Counter()
        self._n_open = 0

    def run(self, call: Callable[[], object]) -> None:
        """Call, and count until it returns."""
        threading.setprofile(self._count)
        sys.setprofile(self._count)
        try:
            call()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        if not self.parts:
            raise SystemExit(f"{': '.join(PART)} was not called: name what makes a part")

    def _count(self, frame: FrameType, event: str, _: Any) -> None:
        found = _function(frame.f_code) if event in ("call", "return") else None
        if found is None:
            return
        if found == PART:
            self._n_open += 1 if event == "call" else -1
        if event == "call":
            self.whole[found] += 1
            if self._n_open:
                self.parts[found] += 1


def _function(code: CodeType) -> tuple[str, str] | None:
    """Return module and name of a function of tokmill, None for other code."""
    if not code.co_filename.startswith(f"{SOURCE}{os.sep}") or code.co_name == "<module>":
        return None
    return Path(code.co_filename).relative_to(SOURCE).as_posix(), code.co_qualname


def trips() -> dict[str, Calls]:
    """Run both calls and return the calls of functions of each trip."""
    records, chats = Tracer(), Tracer()
    with tempfile.TemporaryDirectory(prefix="tokmill-") as made:
        desk = Path(made)
        os.environ["XDG_CACHE_HOME"] = str(desk / "cache")
        given: dict[str, Any] = {"tokenizer": SAMPLES / "tokenizer", "workers": 1, "threads": 1}
        three = _head(SAMPLES / "records.jsonl", 3, desk)
        records.run(lambda: tokmill.pretrain(three, output=desk / "records", **given))
        two = _head(SAMPLES / "sft" / "chats.jsonl", 2, desk)
        chats.run(lambda: tokmill.sft(two, output=desk / "chats", **given))
    return {"block": records.parts, "chat": chats.parts, "call": records.whole}


def _head(path: Path, n_lines: int, desk: Path) -> Path:
    """Copy the first lines of a file and return the copy."""
    with path.open("rb") as file:
        (desk / path.name).write_bytes(b"".join(itertools.islice(file, n_lines)))
    return desk / path.name


def trip_table(found: dict[str, Calls]) -> str:
    """Return functions, modules and calls of each trip, and what is aimed at."""
    rows = []
    for name, calls in found.items():
        figures = (len(calls), len({module for module, _ in calls}), calls.total())
        rows.append([name, *(f"{n:,}" for n in figures), TRIPS[name]])
    return table(["trip", "functions", "modules", "calls", "aim"], rows)


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(prog="bench.trip", description=__doc__.splitlines()[0])
    parser.add_argument("--list", choices=TRIPS, help="list its functions, and the calls of each")
    given = parser.parse_args()
    if given.list:
        for (module, name), n_calls in trips()[given.list].items():
            print(f"{module}: {name} {n_calls:,}")
    else:
        print(trip_table(trips()))


if __name__ == "__main__":
    main()
