"""Measures the formulas of GPU memory on a real GPU.

    python -m bench.gpu_grid --list       the cases, and what the formulas give for them
    python -m bench.gpu_grid              measure, write bench/gpu_grid.json, print the errors
    python -m bench.gpu_grid --score      compare the stored data with the formulas as they are now

Cases that are held out are measured only against formulas that are committed: the data name that
commit. The demand, of what is allocated and of what is reserved: median error <= 3%, worst
<= 10%, over the cases that are held out. Exit codes: 0 it is met, 1 it is not, 2 no measurement.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.gpu_cases import Case, Memory, grid, predicted
from tokmill.words.units import memory

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[1]
DATA = ROOT / "bench" / "gpu_grid.json"
FORMULAS = "src/tokmill/memory"
MEDIAN, WORST = 0.03, 0.10
TIMEOUT_S = 900
NO_DATA = "bench.gpu_grid: no measurements at {}; run python -m bench.gpu_grid on a GPU first"
NO_GPU = "bench.gpu_grid: no GPU here (torch.cuda.is_available() is false); --list needs none"


def main(arguments: Sequence[str]) -> int:
    """Measure, list or score; 2 without a GPU or stored data, 1 where the demand is not met."""
    options = _options(arguments)
    if options.list:
        print(listed(grid()))
        return 0
    if options.score and not DATA.is_file():
        print(NO_DATA.format(DATA), file=sys.stderr)
        return 2
    if options.score:
        return _report(json.loads(DATA.read_text(encoding="utf-8")))
    if not _has_gpu():
        print(NO_GPU, file=sys.stderr)
        return 2
    frozen = formulas_commit()
    cases = [case for case in grid() if not (options.shaped and case.held_out)]
    if frozen["changed"] and any(case.held_out for case in cases):
        print(f"bench.gpu_grid: commit {FORMULAS} first, or give --shaped", file=sys.stderr)
        return 2
    rows = [_row(case) for case in cases]
    date = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d")
    data = {"schema": 1, "date": date, "formulas": frozen, "cases": rows}
    DATA.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return _report(data)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu_grid", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--list", action="store_true", help="only list the cases")
    parser.add_argument("--score", action="store_true", help="only score the stored data")
    parser.add_argument("--shaped", action="store_true", help="leave out what is held out")
    return parser.parse_args(arguments)


def formulas_commit() -> dict[str, Any]:
    """Return the commit of the formulas, and whether they differ from it."""
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--", FORMULAS], capture_output=True, text=True
    )
    return {"commit": commit.stdout.strip(), "changed": bool(changed.stdout.strip())}


def listed(cases: Sequence[Case]) -> str:
    """Lay out the cases with what is expected of them."""
    rows = []
    for case in cases:
        found = predicted(case)
        rows.append((_split(case.held_out), memory(found.allocated), memory(found.reserved),
                     case.name))  # fmt: skip
    return _columns(("split", "allocated", "reserved", "case"), rows)


def errors(row: dict[str, Any], expected: Memory) -> dict[str, float]:
    """Return the relative errors of a measured case, positive where too much was expected.

    `total` is what the card must have: reserved and outside.
    """
    measured = measured_memory(row)
    return {
        "allocated": expected.allocated / measured.allocated - 1,
        "reserved": expected.reserved / measured.reserved - 1,
        "total": (expected.reserved + expected.outside) / (measured.reserved + measured.outside)
        - 1,
    }


def measured_memory(row: dict[str, Any]) -> Memory:
    """Return what a case took; outside is what the card held beside this process's tensors."""
    found = row["measured"]
    outside = found["used_after"] - found["reserved_now"] - row["used_by_others"]
    return Memory(found["allocated"], found["reserved"], outside)


def _has_gpu() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def _row(case: Case) -> dict[str, Any]:
    """Measure a case in a process of its own; one that cannot be measured says why."""
    expected = predicted(case)
    row: dict[str, Any] = {
        "name": case.name,
        "held_out": case.held_out,
        "predicted": asdict(expected),
        "used_by_others": used_by_others(),
    }
    missing = case.needs and importlib.util.find_spec(case.needs) is None
    row |= {"left_out": f"{case.needs} is not installed"} if missing else _measured(case)
    print(f"{case.name}: {row.get('left_out', 'measured')}", file=sys.stderr, flush=True)
    return row


def _measured(case: Case) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="tokmill-gpu-") as directory:
        given, result = Path(directory, "case.json"), Path(directory, "result.json")
        given.write_text(json.dumps(case.as_json()), encoding="utf-8")
        command = [sys.executable, "-m", "bench.gpu_child", str(given), str(result)]
        try:
            done = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            return {"left_out": f"no result after {TIMEOUT_S} s"}
        if done.returncode:
            return {"left_out": (done.stderr.strip().splitlines() or ["died"])[-1]}
        return {"measured": json.loads(result.read_text(encoding="utf-8"))}


def used_by_others() -> int:
    """Return the bytes that the first GPU holds before a case starts; 0 where nobody can say."""
    if shutil.which("nvidia-smi") is None:
        return 0
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    done = subprocess.run(query, capture_output=True, text=True)
    first = (done.stdout.splitlines() or [""])[0].strip()
    return int(first) << 20 if first.isdigit() else 0


def _report(data: dict[str, Any]) -> int:
    scores, text = scored(data)
    print(text)
    now = formulas_commit()
    if now["changed"] or now["commit"] != data["formulas"]["commit"]:
        print(f"\nmeasured with the formulas of {data['formulas']['commit'][:12]}; others now")
    held_out = [scores.get((_split(True), kind), []) for kind in ("allocated", "reserved")]
    return 0 if all(map(meets_the_demand, held_out)) else 1


def scored(data: dict[str, Any]) -> tuple[dict[tuple[str, str], list[float]], str]:
    """Score stored data with the formulas as they are: errors by split and kind, and a table."""
    cases = {case.name: case for case in grid()}
    rows: list[Sequence[str]] = []
    scores: dict[tuple[str, str], list[float]] = {}
    lines = []
    for row in data["cases"]:
        if row["name"] not in cases or "measured" not in row:
            lines.append(f"left out: {row['name']}: {row.get('left_out', 'no case any more')}")
            continue
        found = errors(row, predicted(cases[row["name"]]))
        split = _split(row["held_out"])
        for kind, error in found.items():
            scores.setdefault((split, kind), []).append(error)
        shown = [f"{error:+.1%}" for error in found.values()]
        rows.append((split, memory(row["measured"]["allocated"]), *shown, row["name"]))
    head = ("split", "allocated", "error", "of reserved", "of total", "case")
    for (split, kind), values in scores.items():
        sizes = [abs(value) for value in values]
        lines.append(
            f"{split}, {kind}: {len(sizes)} cases, median error {statistics.median(sizes):.1%}, "
            f"worst {max(sizes):.1%}"
        )
    return scores, "\n".join([_columns(head, rows), "", *lines])


def meets_the_demand(found: Sequence[float]) -> bool:
    """Return whether the errors of held-out cases are as small as they must be; none is not."""
    sizes = [abs(value) for value in found]
    return bool(sizes) and statistics.median(sizes) <= MEDIAN and max(sizes) <= WORST


def _split(held_out: bool) -> str:
    return "held out" if held_out else "shaped"


def _columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [head, *rows]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
