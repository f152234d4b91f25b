"""Times the start and a resume of a Loader on 10^12 tokens, and its memory over 10^9 tokens.

    python -m bench.loader_start

The files are sparse. Each figure is of a process of its own. Start: from the first import to the
first batch. Memory: anonymous bytes of the process while an epoch is read.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

from bench.loader_data import write_dataset

TRILLION = {"shards": 500, "shard_tokens": 2_000_000_000, "document_tokens": 1_000_000}
BILLION = {"shards": 4, "shard_tokens": 250_000_000, "document_tokens": 1_000}

START = """
import time; began = time.perf_counter()
import json, sys
from tokmill.loader import Loader, windows
source = windows(sys.argv[1], 4096, shift=True)
loader = Loader(source, 16, seed=1, world=8, rank=3)
if sys.argv[2] == "resume":
    state = loader.state_dict() | {"epoch": 7, "samples_seen": len(source) - 1000}
    loader.load_state_dict(state)
batch = next(iter(loader))
seconds = time.perf_counter() - began
print(json.dumps({"tokens": len(source) * 4096, "seconds": seconds}))
"""

MEMORY = """
import json, re, sys
from tokmill.loader import Loader, windows
def anonymous():
    text = open("/proc/self/smaps_rollup").read()
    return int(re.search(r"Anonymous: *(\\d+)", text)[1]) * 1024
source = windows(sys.argv[1], 4096, shift=True)
seen = []
for number, batch in enumerate(Loader(source, 64, seed=1, epochs=1, workers=int(sys.argv[2]))):
    if number % 200 == 20:
        seen.append(anonymous())
print(json.dumps({"tokens": len(source) * 4096, "first": seen[0], "most": max(seen),
                  "last": seen[-1]}))
"""


def run(program: str, *arguments: str) -> dict[str, Any]:
    """Return what a program prints as JSON, run in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], check=True, capture_output=True, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Print the figures."""
    print(f"{platform.machine()}, Python {platform.python_version()}, {date.today()}\n")
    with tempfile.TemporaryDirectory() as folder:
        write_dataset(Path(folder), **TRILLION, sparse=True)
        for name in ("start", "resume"):
            found = [run(START, folder, name) for _ in range(5)]
            seconds = " ".join(f"{one['seconds']:.3f}" for one in found)
            print(f"{name}: {found[0]['tokens']:,} tokens, first batch after {seconds} s")
    with tempfile.TemporaryDirectory() as folder:
        write_dataset(Path(folder), **BILLION, sparse=True)
        for workers in ("0", "2"):
            memory = run(MEMORY, folder, workers)
            sizes = " ".join(
                f"{name} {memory[name] / 2**20:.1f}" for name in ("first", "most", "last")
            )
            print(f"memory: {memory['tokens']:,} tokens, {workers} workers: {sizes} MiB")


if __name__ == "__main__":
    main()
