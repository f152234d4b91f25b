"""Where the time of a short run goes: a table of stages, for each tokenizer and each verb.

    python -m bench.start INPUT TOKENIZER … [--sft] [--rounds 7] [-- OPTION …]

Each run is a process of its own, and the first of a tokenizer is not counted: it fills the caches
of files and of engine choices. The modules that a run imports are imported first, in their order,
so that their time stands in one row. Medians of wall time in milliseconds; the last row is CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

INTERPRETER, IMPORTS, EXIT, REST = "interpreter", "imports", "exit", "the rest"

STAGES = {
    "tokenizer files": ("tokmill.run.head_start", "load_tokenizer"),
    "reference": ("tokmill.tokenizer.tokenizer", "_load_library"),
    "reference, waited for": ("tokmill.tokenizer.library_process", "LibraryProcess.loaded"),
    "reference, again": ("tokmill.tokenizer.tokenizer", "Tokenizer.library"),
    "inputs": ("tokmill.run.whole_run", "prepare"),
    "engine choice": ("tokmill.run.whole_run", "choose_run_engine"),
    "comparison, beside": ("tokmill.run.choose_engine", "compared_choice"),
    "engine": ("tokmill.engines.engine_memory", "EngineMemory.load"),
    "blocks": ("tokmill.run.whole_run", "_all_records"),
    "manifest": ("tokmill.run.whole_run", "finish"),
}
"""Functions whose time is a stage, without that of the stages inside it."""

ROWS = (INTERPRETER, IMPORTS, *STAGES, REST, EXIT)
WALL, CPU = "wall", "CPU"
WAITS = {"engine": "blocks"}


class Stages:
    """Seconds by stage, on all threads."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._here = threading.local()
        self._lock = threading.Lock()

    def timed(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose calls count as a stage."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            is_main = threading.current_thread() is threading.main_thread()
            around: list[str] = self._here.__dict__.setdefault("around", [REST] if is_main else [])
            # The main thread waits for blocks, and they for their engine.
            outer = around[-1] if around else WAITS.get(stage)
            around.append(stage)
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.perf_counter() - start
                around.pop()
                with self._lock:
                    self.seconds[stage] += spent
                    if outer is not None:
                        self.seconds[outer] -= spent

        return call


def child(result_file: str, began: str, modules_file: str, words: Sequence[str]) -> None:
    """Run a command of tokmill in this process, and write its stages and modules."""
    stages = Stages()
    here = time.monotonic()
    stages.seconds[INTERPRETER] = here - float(began)
    from tokmill.no_pandas import skip_pandas

    skip_pandas()
    for name in json.loads(Path(modules_file).read_bytes() or b"[]"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    from tokmill.cli.main import main

    imported = time.monotonic()
    stages.seconds[IMPORTS] = imported - here
    for stage, (module, path) in STAGES.items():
        holder: Any = importlib.import_module(module)
        *classes, name = path.split(".")
        for one in classes:
            holder = getattr(holder, one)
        setattr(holder, name, stages.timed(stage, getattr(holder, name)))
    start = time.monotonic()
    sys.argv = ["tokmill", *words]
    code: Any = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    gc.freeze()  # as `tokmill.__main__` does
    end = time.monotonic()
    stages.seconds[REST] += end - start
    found = {"code": code, "end": end, "seconds": stages.seconds, "modules": list(sys.modules)}
    Path(result_file).write_text(json.dumps(found))


def run(words: Sequence[str], folder: Path) -> dict[str, float]:
    """Run a command in a process of its own; return the seconds of each stage, `WALL` and `CPU`.

    Raises:
        SystemExit: the command failed.
    """
    result, modules = folder / "result.json", folder / "modules.json"
    modules.touch()
    before, began = os.times(), time.monotonic()
    command = [sys.executable, "-m", "bench.start", "--child", result, repr(began), modules, *words]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    ended, after = time.monotonic(), os.times()
    if done.returncode:
        raise SystemExit(done.stderr)
    found = json.loads(result.read_bytes())
    if found["code"]:
        raise SystemExit(done.stderr)
    modules.write_text(json.dumps([name for name in found["modules"] if "__" not in name]))
    cpu = sum(after[2:4]) - sum(before[2:4])
    return {**found["seconds"], EXIT: ended - found["end"], WALL: ended - began, CPU: cpu}


def measure(
    verb: str, source: Path, tokenizer: Path, extra: Sequence[str], rounds: int
) -> list[Any]:
    """Return the rounds of one tokenizer, the first one left out."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = [verb, str(source), "-t", str(tokenizer), "--quiet", *extra]
        outs = [str(folder / f"out-{i}") for i in range(rounds + 1)]  # an old dataset delays a run
        return [run([*words, "-o", out], folder) for out in outs][1:]


def rows_of(found: dict[str, list[dict[str, float]]]) -> list[list[str]]:
    """Return a row for each stage that takes half a millisecond anywhere: medians."""
    rows = []
    for stage in (*ROWS, WALL, CPU):
        medians = [
            1000 * statistics.median(one.get(stage, 0.0) for one in rounds)
            for rounds in found.values()
        ]
        if max(medians) >= 0.5:
            rows.append([stage, *(f"{value:.0f}" for value in medians)])
    return rows


def main() -> None:
    """Print the table."""
    from bench.tables import table  # not in a child: what it imports is no part of the command

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("tokenizers", type=Path, nargs="+")
    parser.add_argument("--sft", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    words, _, extra = " ".join(sys.argv[1:]).partition(" -- ")
    options = parser.parse_args(words.split())
    verb = "sft" if options.sft else "pretrain"
    found = {
        path.name: measure(verb, options.source, path, extra.split(), options.rounds)
        for path in options.tokenizers
    }
    print(table([f"ms, tokmill {verb}, 1 process", *found], rows_of(found)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
    else:
        main()
