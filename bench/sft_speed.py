"""How many times faster than trl `tokmill sft` makes tokens and masks: a ratio, in turn.

    python -m bench.sft_speed DATA TOKENIZER TEMPLATE.jinja [--rounds N] [--python PYTHON]

DATA is a folder of SFT sets, JSON Lines of any schema: each is repeated to some tens of megabytes.
TEMPLATE has generation tags, and is the chatml that tokmill has built in, or the ratio of the
built-in one is not told. PYTHON has trl's packages, if this one does not. tokmill is the whole
command; of trl only the work on the data counts. Both get all cores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokmill.chat.conversation import ChatError
from tokmill.chat.reading.detect import detect_schema
from tokmill.chat.reading.schemas import read_conversation
from tokmill.settings.sft import SftSettings

ROOT = Path(__file__).resolve().parents[1]
QWEN_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison: rows of a kind, the options of tokmill, and whether trl has a template."""

    name: str
    rows: str
    options: Sequence[str]
    goal: float
    template: bool = True


CASES = (
    Case("flat, built-in", "pairs", ("--template", "plain"), 10, template=False),
    Case(
        "messages of text, built-in",
        "plain",
        ("--template", "chatml", "--default-system", QWEN_SYSTEM, "--suffix", "train"),
        5,
    ),
    Case(
        "tools and calls, built-in",
        "tools",
        ("--template", "chatml", "--default-system", QWEN_SYSTEM, "--suffix", "train"),
        5,
    ),
    Case("messages of text, Jinja", "plain", ("--preset", "trl", "--template", "JINJA"), 3),
    Case("tools and calls, Jinja", "tools", ("--preset", "trl", "--template", "JINJA"), 3),
)


def main() -> None:
    """Measure every case and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("tokenizer")
    parser.add_argument("template")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", default="", help="of the cases, those with this in their name")
    parser.add_argument("--megabytes", type=int, default=160, help="size of each file of rows")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        files = write_rows(given.data, work, given.megabytes * 1_000_000)
        for case in CASES:
            if given.only in case.name:
                print(measure(case, files[case.rows], given, work), flush=True)


def measure(case: Case, data: Path, given: argparse.Namespace, work: Path) -> str:
    """Return one row of the table: ratios of each round, and both speeds."""
    pairs = []
    for number in range(given.rounds):
        ours = run_tokmill(case, data, given, work / f"ours-{case.name}-{number}")
        theirs = run_trl(case, data, given, work / f"trl-{case.name}-{number}")
        pairs.append((ours, theirs))
    ratios = [theirs["seconds"] / ours["seconds"] for ours, theirs in pairs]
    size = data.stat().st_size / 1e6
    speeds = [
        statistics.median(size / run["seconds"] for run in runs)
        for runs in zip(*pairs, strict=True)
    ]
    same = {ours["tokens"] for ours, _ in pairs} == {theirs["tokens"] for _, theirs in pairs}
    return (
        f"| {case.name} | {size:.0f} | {speeds[0]:.1f} | {speeds[1]:.2f} | "
        f"{statistics.median(ratios):.1f} ({min(ratios):.1f}-{max(ratios):.1f}) | {case.goal:g} | "
        f"{'equal' if same else 'differ'} |"
    )


def run_tokmill(case: Case, data: Path, given: argparse.Namespace, out: Path) -> dict[str, Any]:
    """Time the whole command."""
    options = [given.template if option == "JINJA" else option for option in case.options]
    command = [
        *(sys.executable, "-m", "tokmill", "sft", str(data), "-t", given.tokenizer),
        *(*options, "-o", str(out), "--json"),
    ]
    start = time.perf_counter()
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "tokens": json.loads(printed)["totals"]["tokens"]}


def run_trl(case: Case, data: Path, given: argparse.Namespace, out: Path) -> dict[str, Any]:
    """Time trl's preparation, by its own clock."""
    command = [
        *(given.python, "-m", "bench.peers.trl_masks", str(data), given.tokenizer),
        *(given.template if case.template else "", str(len(os.sched_getaffinity(0))), str(out)),
    ]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def write_rows(folder: Path, work: Path, n_bytes: int) -> dict[str, Path]:
    """Write the sets as rows that both sides read: pairs, messages of text, others with tools."""
    kinds: dict[str, list[str]] = {"pairs": [], "plain": [], "tools": []}
    for path in sorted(folder.glob("*.jsonl")):
        for kind, row in rows_of(path):
            kinds[kind].append(json.dumps(row, ensure_ascii=False))
    files = {}
    for kind, rows in kinds.items():
        block = "\n".join(rows) + "\n"
        files[kind] = work / f"{kind}.jsonl"
        files[kind].write_text(block * (1 + n_bytes // len(block.encode())), encoding="utf-8")
    return files


def rows_of(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return each record of a set in the forms that it can have."""
    records = [json.loads(line) for line in path.open(encoding="utf-8")]
    schema, settings = detect_schema(records), SftSettings()
    for record in records:
        try:
            chat = read_conversation(record, schema, settings)
        except ChatError:
            continue
        messages = chat.messages
        if [message["role"] for message in messages] == ["user", "assistant"]:
            yield (
                "pairs",
                {k: m["content"] for k, m in zip(("prompt", "completion"), messages, strict=True)},
            )
        if chat.tools or any(len(message) > 2 for message in messages):
            # as text, since the rows of an Arrow table would gain keys that are null
            row = {"messages": json.dumps(messages, ensure_ascii=False)}
            yield "tools", row | {"tools": json.dumps(chat.tools, ensure_ascii=False)}
        else:
            yield "plain", {"messages": messages}


if __name__ == "__main__":
    main()
